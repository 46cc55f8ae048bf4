"""The daemon in memory on a real bus: `python -m tests.unit.cli.served FOLDER`; prints a line when it can be called.

Its tasks live as their capability says: `files.checksum` as `life` below, `sleep.long` for ever, `ask.disk` asks first,
`ask.leave` wants an approval.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.bus.connection import MethodCall, SystemBus, Variant
from aiosd.cli.client import MANAGER, MANAGER_PATH, MEMBERS, Option
from aiosd.cli.failure import Failure
from aiosd.cli.wire import BUS_NAME
from aiosd.model.jsontext import dump
from tests.unit.cli import contract
from tests.unit.cli.daemon import ONE, Daemon

if TYPE_CHECKING:
    from aiosd.cli.client import Argument
    from aiosd.model.jsontext import JsonObject


QUESTION: JsonObject = {
    "interaction": 1,
    "prompt": "Which\x1b[2J disk?",
    "options": [{"id": "sda", "label": "The \x1b[31mold one"}, {"id": "sdb", "label": "The new one"}],
    "schema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["disk", "copies", "sure", "token"],
        "properties": {
            "disk": {"enum": ["sda", "sdb"], "title": "Disk"},
            "copies": {"type": "integer", "minimum": 1},
            "note": {"type": "string"},
            "sure": {"type": "boolean"},
            "token": {"type": "string", "format": "password"},
        },
    },
}
"""A field of every kind."""


async def ask(daemon: Daemon, task_id: str) -> None:
    """Asks, and ends with the answer as its result."""
    daemon.change(task_id, "input_required", question=QUESTION)
    daemon.event(task_id, "task.input_required", prompt=QUESTION["prompt"])
    await daemon.becomes(task_id, "working")
    daemon.change(task_id, "completed", result=daemon.tasks[task_id].get("answered", {}))


APPROVAL = "apr-01jdxg3v7m9q2w4e6r8t0y1abc"


async def ask_leave(daemon: Daemon, task_id: str) -> None:
    """Asks for an approval as a running program does, and ends with the answer as its result."""
    daemon.approvals[APPROVAL] = {
        "id": APPROVAL, "kind": "dangerous_command", "summary": "rm -rf \x1b[2Jbuild-cache", "risk_level": "high",
        "status": "pending", "uid": 1000, "capability_id": "ask.leave", "task_id": task_id, "request_hash": "0" * 64,
        "requester": ":1.1", "title": "", "expires_at": "2026-01-05T10:00:00.000Z", "void": False,
    }  # fmt: skip
    asked: JsonObject = {"type": "approval", "approval_id": APPROVAL, "interaction": 1, "kind": "dangerous_command"}
    daemon.change(task_id, "auth_required", auth_request=asked)
    daemon.event(task_id, "task.auth_required", auth_request=asked)
    while daemon.approvals[APPROVAL]["status"] == "pending":  # noqa: ASYNC110  its answer has no event of its own
        await asyncio.sleep(0.02)
    daemon.change(task_id, "working", auth_request=None)
    daemon.event(task_id, "task.status", status="working")
    await asyncio.sleep(0.2)
    daemon.change(task_id, "completed", result={"heard": daemon.approvals[APPROVAL]["status"]})


async def life(daemon: Daemon, task_id: str) -> None:
    """Works for a second, prints what would hurt a terminal, ends well."""
    daemon.log(task_id, "stdout", b"")
    daemon.log(task_id, "stderr", b"")
    daemon.change(task_id, "working", attempt=1)
    if daemon.tasks[task_id]["capability_id"] == "ask.disk":
        await ask(daemon, task_id)
        return
    if daemon.tasks[task_id]["capability_id"] == "ask.leave":
        await ask_leave(daemon, task_id)
        return
    if daemon.tasks[task_id]["capability_id"] == "sleep.long":
        return
    await asyncio.sleep(0.2)
    daemon.log(task_id, "stdout", b"\x1b]0;owned\x07line \x1b[2Jone\n")
    daemon.event(task_id, "task.progress", progress={"percent": 40, "message": "hashing \x1b[31mfiles"})
    await asyncio.sleep(0.6)
    daemon.log(task_id, "stdout", b"\xffend")
    daemon.change(task_id, "completed", result={"files": 3})


class Server:
    """Answers method calls from the daemon in memory."""

    def __init__(self, bus: SystemBus, daemon: Daemon) -> None:
        self.bus = bus
        self.daemon = daemon
        self.answers: set[asyncio.Task[None]] = set()
        self.interactive: list[bool] = []

    def on_call(self, call: MethodCall) -> None:
        self.answers.add(asyncio.create_task(self.answer(call)))

    async def answer(self, call: MethodCall) -> None:
        body = tuple(_unpacked(value) for value in call.body)
        (self.daemon.folder / "interactive").write_text(f"{call.interactive}")
        try:
            reply = await self.daemon.call(MEMBERS[call.member], call.path, body, None)
        except Failure as failure:
            assert failure.kind is not None
            self.bus.send_error(call, failure.kind.dbus_name, failure.what, dump(failure.data))
        else:
            self.bus.send_reply(call, contract.methods()[call.member].given, reply.body, reply.fds)  # type: ignore[arg-type]  # plain values

    def send(self, name: str) -> None:
        def relay(notice: object) -> None:
            body = notice.body  # type: ignore[attr-defined]  # a Notice
            self.bus.send_signal(MANAGER_PATH, MANAGER, name, contract.signals()[name], body)

        self.daemon.listeners.append(((name,), relay))


def _unpacked(value: object) -> Argument:
    if isinstance(value, dict):
        return {name: Option(each.signature, each.value) for name, each in value.items() if isinstance(each, Variant)}
    assert isinstance(value, str | int | list)
    return value


async def main() -> None:
    daemon = Daemon(Path(sys.argv[1]), script=life)
    daemon.add(ONE, "completed", title="Old \x1b[1mtask")
    daemon.log(ONE, "stdout", bytes(range(256)) * 1000)
    daemon.log(ONE, "stderr", b"")
    daemon.artifacts["art-1"] = b"artifact"
    async with SystemBus() as bus:
        server = Server(bus, daemon)
        for name in ("Event", "StateChanged", "TaskNew", "TaskRemoved"):
            server.send(name)
        bus.serve(server.on_call)
        assert await bus.request_name(BUS_NAME)
        print("ready", flush=True)
        await bus.closed.wait()


if __name__ == "__main__":
    asyncio.run(main())
