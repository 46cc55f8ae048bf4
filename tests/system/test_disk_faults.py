"""The daemon's disk fails under it: what callers are told, what goes on, and that it works again when the disk does.

A disk that is full, one that is read-only at the start: `test_faults.py`. Here fsync(2) fails (EIO), and a file system
is turned read-only by the kernel while the daemon has its database open on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.outcomes import note
from tests.rig import disk, host
from tests.system.trouble import (
    SERVICE,
    STATE,
    STORAGE,
    aiosctl,
    becomes,
    create,
    eventually,
    machine,
    scopes,
    serves,
    starts,
    task,
    well_afterwards,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

    from tests.rig.container import Container
    from tests.rig.disk import FailingDisk

__all__ = ["machine", "well_afterwards"]
"""Fixtures."""

PLACE = "/run/failing-disk"


@pytest.fixture
def failing_disk(machine: Container) -> Iterator[FailingDisk]:
    """The daemon's state on a disk that can be told to fail."""
    machine.run("systemctl", "stop", *SERVICE)
    try:
        with disk.failing(machine.leader.pid, PLACE) as made:
            owner = "$(id -u aiosd):$(id -g aiosd)"
            machine.sh(f"cp -a {STATE}/. {PLACE}/ && chown {owner} {PLACE} && chmod 700 {PLACE}")
            machine.run("mount", "--bind", PLACE, STATE)
            machine.run("systemctl", "start", *SERVICE)
            try:
                yield made
            finally:
                machine.run("systemctl", "stop", *SERVICE)
                machine.run("umount", STATE)
                machine.run("umount", PLACE)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    finally:
        machine.run("systemctl", "start", *SERVICE)


def main_pid(box: Container) -> str:
    return box.run("systemctl", "show", "--value", "--property=MainPID", "aiosd.service").stdout.strip()


def first_refusal(box: Container) -> CompletedProcess[str]:
    """Create tasks until one is refused; what was said then."""
    for _ in range(60):
        done = aiosctl(box, "run", "test.sleep", "seconds=0", "--json")
        if done.returncode:
            return done
    raise AssertionError("the disk fails, and nobody says so")


def test_fsync_fails_and_works_again(machine: Container, failing_disk: FailingDisk) -> None:
    running = create(machine, "test.sleep", "seconds=3")
    starts(machine, running)
    pid = main_pid(machine)
    failing_disk.fail()
    done = first_refusal(machine)
    assert done.returncode == STORAGE, done.stderr + done.stdout
    assert "reading or writing the store failed" in done.stdout + done.stderr
    assert aiosctl(machine, "list").returncode == 0, "what is there can be read"
    eventually(lambda: not scopes(machine), "the running task has come to its end meanwhile")
    refused = [first_refusal(machine).returncode for _ in range(3)]
    assert refused == [STORAGE] * 3
    failing_disk.heal()
    assert becomes(machine, running, "completed")["attempt"] == 1
    becomes(machine, create(machine, "test.sleep", "seconds=0"), "completed")
    assert main_pid(machine) == pid, "it was not replaced for it"
    assert aiosctl(machine, "state", "check").returncode == 0
    assert aiosctl(machine, "audit", "verify").returncode == 0
    note(
        "faults", "fsync(2) fails with EIO",
        f"creation refused {1 + len(refused)} times (exit status {STORAGE}); reading works; the task that ends then "
        "completes, 1 attempt; works again with the disk, not restarted",
    )  # fmt: skip


def test_turned_read_only_under_it(machine: Container, failing_disk: FailingDisk) -> None:
    """The kernel lets nobody write until the file system is mounted anew, for which the daemon has to stop."""
    kept = create(machine, "test.sleep", "seconds=0")
    becomes(machine, kept, "completed")
    running = create(machine, "test.sleep", "seconds=3")
    starts(machine, running)
    pid = main_pid(machine)
    failing_disk.turn_read_only()
    done = first_refusal(machine)
    assert done.returncode == STORAGE, done.stderr + done.stdout
    assert task(machine, kept)["status"] == "completed", "what is there can be read"
    eventually(lambda: not scopes(machine), "the running task has come to its end meanwhile")
    assert first_refusal(machine).returncode == STORAGE
    assert main_pid(machine) == pid, "it goes on serving what it can"
    machine.run("systemctl", "stop", *SERVICE)
    machine.sh(f"umount {STATE} && cp -a {PLACE}/. {STATE}/ && mount --bind {STATE} {STATE}")
    machine.run("systemctl", "start", *SERVICE)
    serves(machine)
    assert becomes(machine, running, "completed")["attempt"] == 1, "its result was on the other disk"
    assert aiosctl(machine, "state", "check").returncode == 0
    note(
        "faults", "file system turned read-only by the kernel under it",
        f"creation refused (exit status {done.returncode}); reading works, not restarted; the task that ends meanwhile "
        "completes, 1 attempt, on a file system that can be written",
    )  # fmt: skip
