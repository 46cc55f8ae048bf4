"""What the tests of the whole product share: its box with the test's capabilities, people who call it, its journal."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.connection import Variant
from tests.system.busctl import Busctl
from tests.system.caller import Refused, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rig.container import Container
    from tests.system.caller import Caller

CAPABILITIES = "/run/aios/capabilities.d"
UNITS = ("aiosd.service", "aios-launcher.service")
SEATED = {"alice_at_seat", "asked"}
"""Fixtures of people at the machine; of their sessions one is active at a time, and a test uses one of them."""
UNFINISHED = Variant("as", ["pending", "working", "paused", "input_required", "auth_required"])


def pytest_configure(config: pytest.Config) -> None:
    """Declare what a test can say of itself."""
    config.addinivalue_line(
        "markers", "warns(regex): what the test does makes the product write warnings like this into the journal"
    )


@pytest.fixture(scope="session")
def equipped(box: Container) -> Container:
    """The box, with the capabilities of these tests."""
    box.sh(f"mkdir -p -m 755 {CAPABILITIES} && install -m 644 /src/tests/system/capabilities.d/*.toml {CAPABILITIES}")
    box.run("systemctl", "reload", "aiosd.service")
    return box


@pytest.fixture(scope="session")
def root(equipped: Container) -> Iterator[Caller]:
    """The administrator."""
    with connected(equipped, "root") as caller:
        yield caller


@pytest.fixture(scope="session")
def alice(equipped: Container) -> Iterator[Caller]:
    """A user, in no session."""
    with connected(equipped, "alice") as caller:
        yield caller


@pytest.fixture(scope="session")
def bob(equipped: Container) -> Iterator[Caller]:
    """Another user, in no session."""
    with connected(equipped, "bob") as caller:
        yield caller


@pytest.fixture(scope="session")
def alice_at_seat(equipped: Container) -> Iterator[Caller]:
    """The user in a local, active session."""
    with connected(equipped, "alice", seat="seat0") as caller:
        yield caller


@pytest.fixture(scope="session")
def busctl(equipped: Container) -> Busctl:
    """busctl(1) as alice."""
    return Busctl(equipped, "alice")


@pytest.fixture(scope="session")
def as_root(equipped: Container) -> Busctl:
    """busctl(1) as root."""
    return Busctl(equipped, "root")


def cursor(box: Container) -> str:
    """Where the journal is."""
    shown = box.run("journalctl", "--lines=0", "--show-cursor", "--quiet").stdout
    return shown.rpartition("-- cursor: ")[2].strip()


def warnings_since(box: Container, where: str) -> list[str]:
    """What aiosd, the launcher and the shims of its tasks have written since of priority warning and worse."""
    units = [f"--unit={unit}" for unit in (*UNITS, "aios-task-*.scope")]
    shown = box.run(
        "journalctl", f"--after-cursor={where}", "--priority=warning", "--output=json", "--no-pager", "--quiet", *units
    ).stdout
    entries: list[dict[str, object]] = [json.loads(line) for line in shown.splitlines()]
    return [str(entry.get("MESSAGE")) for entry in entries if entry.get("_PID") != "1"]  # not systemd's of its units


@pytest.fixture(autouse=True)
def orderly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave no unfinished task behind, and fail a test whose warnings in the journal it does not account for."""
    if "equipped" not in request.fixturenames:
        yield
        return
    root: Caller = request.getfixturevalue("root")
    for name in SEATED & set(request.fixturenames):
        request.getfixturevalue(name).come_to_the_front()
    where = cursor(root.box)
    yield
    for task_id in root.tasks(status=UNFINISHED, all_users=Variant("b", True)):
        with suppress(Refused):  # it has just ended by itself
            root.cancel(task_id)
    expected = [re.compile(mark.args[0]) for mark in request.node.iter_markers("warns")]
    odd = [text for text in warnings_since(root.box, where) if not any(known.search(text) for known in expected)]
    if odd:
        pytest.fail("unexpected in the journal:\n" + "\n".join(odd), pytrace=False)
