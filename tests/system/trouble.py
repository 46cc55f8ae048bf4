"""What the tests of faults share: a box that is theirs to break, and words for what is asked of it afterwards.

Import `machine` and `well_afterwards` where they are wanted: each file then has a box of its own.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.rig import container, host, product

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

    from aiosd.model.jsontext import JsonObject
    from tests.rig.container import Container

STATE = "/var/lib/aiosd"
CAPABILITIES = "/run/aios/capabilities.d"
STORAGE = 74
"""aiosctl's exit status when the store cannot be written (EX_IOERR)."""
SERVICE = ("aiosd.socket", "aiosd-lines.socket", "aiosd.service")
FINALS = ("completed", "failed", "canceled")
PATIENCE = 60.0


@pytest.fixture(scope="module")
def machine() -> Iterator[Container]:
    """A box that nobody else uses."""
    try:
        booted = container.Container.boot(f"faults-{os.getpid()}", bind={host.CHECKOUT: "/src"}, owned=True)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    try:
        product.deploy(booted)
        booted.sh(f"mkdir -p -m 755 {CAPABILITIES} && cp /src/tests/system/capabilities.d/*.toml {CAPABILITIES}")
        booted.run("systemctl", "reload", "aiosd.service")
        yield booted
    finally:
        booted.stop()


@pytest.fixture(autouse=True)
def well_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever was done, the daemon serves and runs a task once the cause is gone."""
    yield
    box: Container = request.getfixturevalue("machine")
    box.run("systemctl", "reset-failed", check=False)
    eventually(lambda: aiosctl(box, "run", "test.sleep", "seconds=0", "--wait").returncode == 0, "a task runs")


def eventually(check: Callable[[], bool], what: str, *, within: float = PATIENCE) -> None:
    deadline = time.monotonic() + within
    while not check():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.1)


def aiosctl(box: Container, *words: str, user: str = "root") -> CompletedProcess[str]:
    return box.run("aiosctl", *words, user=user, check=False)


def create(box: Container, *words: str, user: str = "root") -> str:
    done = aiosctl(box, "run", *words, "--json", user=user)
    assert done.returncode == 0, done.stderr + done.stdout
    return str(json.loads(done.stdout.splitlines()[0])["task_id"])


def task(box: Container, task_id: str) -> JsonObject:
    done = aiosctl(box, "show", task_id, "--json")
    if done.returncode:
        return {}
    shown: JsonObject = json.loads(done.stdout)
    inner = shown.get("task", shown)
    assert isinstance(inner, dict)
    return inner


def becomes(box: Container, task_id: str, status: str, *, within: float = PATIENCE) -> JsonObject:
    eventually(lambda: task(box, task_id).get("status") == status, f"{task_id} is {status}", within=within)
    return task(box, task_id)


def starts(box: Container, task_id: str) -> None:
    """Wait until it runs; a short one may have come to its end before somebody looks."""
    eventually(lambda: task(box, task_id).get("status") in ("working", "completed"), f"{task_id} starts")


def serves(box: Container) -> None:
    def well() -> bool:
        done = aiosctl(box, "status", "--json")
        return done.returncode == 0 and json.loads(done.stdout)["launcher"]["connected"]

    eventually(well, "aiosd serves")


def scopes(box: Container) -> list[str]:
    shown = box.run("systemctl", "list-units", "--plain", "--no-legend", "aios-task-*.scope").stdout
    return [line.split()[0] for line in shown.splitlines()]
