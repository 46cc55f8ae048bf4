"""The daemon's way of a secret, from descriptor to control socket, in a process of its own whose memory is looked at.

`python -m tests.unit.core.keeps_nothing STATE SECRET_FD CONTROL_FD CANARY`; says "done" and waits for its stdin to end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.auth.caller import BusSubject, Caller
from aiosd.auth.decision import Decision
from aiosd.bus.descriptors import Received
from aiosd.config import Config
from aiosd.core import clock, secrets
from aiosd.core.authentication_operations import AuthenticationOperations, Handover
from aiosd.core.authorization import Authorizer
from aiosd.core.consent import Consents
from aiosd.core.deferred import Deferred
from aiosd.core.events import EventHub
from aiosd.core.manager import Manager
from aiosd.core.policies import PolicyStore
from aiosd.core.registry import Registry
from aiosd.core.settings import Settings
from aiosd.core.watch import Watch
from aiosd.model.status import Level, Phase, Priority, Status
from aiosd.model.task import Task
from aiosd.run.client import ControlChannel
from aiosd.store import tasks
from aiosd.store.database import Database
from tests.unit.core.rig import Elsewhere, FakePlaces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.auth.caller import Subject

TASK = "task-001"
OWNER = 1000


class Everybody:
    """An authority that allows."""

    async def check(
        self, subject: Subject, action_id: str, details: Mapping[str, str], *, interactive: bool
    ) -> Decision:
        return Decision.ALLOWED


class OneRun:
    """The supervision of one run."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def of_task(self, task_id: str) -> Watch | None:
        return self.watch if task_id == TASK else None


def waiting() -> Task:
    moment = clock.now()
    return Task(
        TASK, OWNER, "test.plain.run", "", Level.LOW, Status.AUTH_REQUIRED, Phase.WAITING_AUTH, Priority.NORMAL,
        moment, moment, auth_request={"type": "password", "interaction": 1},
    )  # fmt: skip


async def main(state: Path, secret_fd: int, control_fd: int) -> None:
    settings = Settings(Config())
    async with Database.open(state / "aiosd.db") as database:
        await database.write(lambda tx: tasks.insert(tx, waiting()))
        vault = await asyncio.to_thread(secrets.load, state)
        channel = ControlChannel(socket.socket(fileno=control_fd))
        supervision = OneRun(Watch("run-1", TASK, None, state, control=channel))
        authorizer, registry = Authorizer(Everybody(), FakePlaces()), Registry(())
        consents = Consents(database, authorizer, PolicyStore(), settings)
        group = AuthenticationOperations(
            database, authorizer, vault, supervision,  # type: ignore[arg-type]  # all of it that is asked
            Handover(database, vault, supervision),  # type: ignore[arg-type]  # as above
            Deferred(database, registry, consents, settings),
        )  # fmt: skip
        manager = Manager(EventHub(), [group, Elsewhere([group])])
        caller = Caller(OWNER, BusSubject(":1.7"))
        with Received([secret_fd]) as received:
            secret = await received.secret("auth_response", 0)
            await manager.invoke("task.authenticate", caller, {"task_id": TASK}, secret)
        print("done", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        channel.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    canary = sys.argv[4]
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
