"""Fixtures for every kind of test.

`tests/unit` one idea at a time, nothing outside the process; `tests/bus` a private bus and real clients; `tests/rpc`
the JSON-RPC door on real sockets; `tests/system` the installed product on real systemd; `tests/limits` the same where
limits are enforced; `tests/image` the package and the OS image. What is cheap and near to the cause runs, and fails,
first. Where files are shared out among processes, what takes longest begins first.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import prerequisites
from tests.leaks import Possessions, left_since, recorded_tasks
from tests.rig import container, host, product

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

KINDS = {
    "unit": "one idea at a time, nothing outside the process",
    "bus": "a private D-Bus daemon and real clients",
    "rpc": "the JSON-RPC door on real sockets",
    "system": "the installed product on real systemd, in a container",
    "image": "the package and the OS image",
    "soak": "minutes of random work and random kills",
    "limits": "the installed product under a kernel that enforces limits",
    "bench": "figures",
}
#: Where files are shared out, these begin, in this order; else they would be what is left when all others are done.
#: A process with a file of one or two tests is given its next file at once, so behind four of those come short ones.
FIRST = (
    *("unit/reliability/test_crash.py", "fuzz/test_fuzz.py", "unit/test_quality.py"),
    *("system/test_debian_versions.py", "soak/test_soak.py", "image/test_boot.py", "system/test_upgrade.py"),
    *("system/test_story.py", "system/test_escapes.py", "system/test_installed.py", "system/test_takeover.py"),
    *("system/test_faults.py", "system/test_matrix.py", "image/test_package.py", "bench/test_bench.py"),
    *("system/test_units.py", "system/test_restart.py", "system/test_permissions.py", "system/test_disk_faults.py"),
)
#: Where the boxes see this checkout, read-only.
CHECKOUT_IN_BOX = "/src"

_TESTS = Path(__file__).parent
_call_passed = pytest.StashKey[bool]()


# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("aiosd", deadline=None)
hypothesis.settings.load_profile("aiosd")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; the directory a test is in gives it its own.

    And let Ctrl-C be heard: a shell starts what runs in its background with SIGINT ignored, which every child inherits
    and no test of an interrupted program survives.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, meaning in KINDS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    config.addinivalue_line("markers", "quality: linters; needs the development tools")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note each test that failed in the file that `AIOSD_FAILED_TESTS` names, for who runs them once more."""
    if report.failed and (noted := os.environ.get("AIOSD_FAILED_TESTS")) and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(noted).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


def _kind(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark by directory and put the kinds into the order of `KINDS`; where they are shared out, `FIRST` before all."""
    order = list(KINDS)
    for item in items:
        if (kind := _kind(item)) in KINDS:
            item.add_marker(kind)
    items.sort(key=lambda item: order.index(_kind(item)) if _kind(item) in KINDS else len(order))
    if hasattr(config, "workerinput"):
        first = {str(_TESTS / name): number for number, name in enumerate(FIRST)}
        items.sort(key=lambda item: first.get(str(item.path), len(first)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether the test itself passed; show what the box's journal says about one that did not."""
    report = yield
    if report.when == "call":
        item.stash[_call_passed] = report.passed
    box = getattr(item, "funcargs", {}).get("box")
    if report.failed and isinstance(box, container.Container) and box.leader.alive():
        log = box.run("journalctl", "--no-pager", "--lines=80", "--output=short-precise", check=False)
        report.sections.append(("journal of the box", log.stdout))
    return report


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test of one process that leaves asyncio tasks, threads, processes or descriptors behind."""
    if _kind(request.node) not in {"unit", "bus", "rpc"}:
        yield
        return
    before = Possessions.now()
    with recorded_tasks() as tasks:
        yield
    left = tasks + left_since(before)
    if left and request.node.stash.get(_call_passed, False):
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture(scope="session")
def box() -> Iterator[container.Container]:
    """A container with the product of this checkout installed and aiosd ready; this checkout is at /src in it."""
    container.reap()
    try:
        booted = container.Container.boot(f"test-{os.getpid()}", bind={host.CHECKOUT: CHECKOUT_IN_BOX}, owned=True)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    try:
        # Root's commands wait for no approval here; test_permissions.py is about those that do.
        booted.write("/etc/aios/permission-policy.toml", "root_command_without_approval = true\n")
        product.deploy(booted)
        # How busy the host is must not decide when a task of low priority starts; tests of it have a box of their own.
        booted.sh("mkdir -p -m 755 /run/aios/aiosd.conf.d")
        booted.write(
            "/run/aios/aiosd.conf.d/00-box.conf", "[Scheduler]\nmemory_pressure=infinity\ncpu_pressure=infinity\n"
        )
        booted.run("systemctl", "reload", "aiosd.service")
        yield booted
    finally:
        booted.stop()
