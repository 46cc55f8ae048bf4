"""The daemon's disk fails under it: what callers are told, what goes on, and that it works again when the disk does.

A disk that is full, one that is read-only at the start: `test_faults.py`. Here fsync(2) fails (EIO), and a file system
is turned read-only by the kernel while the daemon has its database open on it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

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


class Refusal(NamedTuple):
    """The first creation that was refused, and the tasks that were accepted before it."""

    said: CompletedProcess[str]
    accepted: list[str]


def first_refusal(box: Container) -> Refusal:
    """Create tasks until one is refused."""
    accepted: list[str] = []
    for _ in range(60):
        done = aiosctl(box, "run", "test.sleep", "seconds=0", "--json")
        if done.returncode:
            return Refusal(done, accepted)
        accepted.append(str(json.loads(done.stdout.splitlines()[0])["task_id"]))
    raise AssertionError("the disk fails, and nobody says so")


def unit_of(box: Container, task_id: str) -> str:
    """The scope of its run. Another's may stay as long as the disk fails, at its shut gate: what is accepted is kept,
    and nothing of it runs before it is on record that it does."""
    run = task(box, task_id)["run"]
    assert isinstance(run, dict)
    return str(run["unit"])


def test_fsync_fails_and_works_again(machine: Container, failing_disk: FailingDisk) -> None:
    running = create(machine, "test.sleep", "seconds=3")
    starts(machine, running)
    unit = unit_of(machine, running)
    pid = main_pid(machine)
    failing_disk.fail()
    done, accepted = first_refusal(machine)
    assert done.returncode == STORAGE, done.stderr + done.stdout
    assert "reading or writing the store failed" in done.stdout + done.stderr
    assert aiosctl(machine, "list").returncode == 0, "what is there can be read"
    eventually(lambda: unit not in scopes(machine), "the running task has come to its end meanwhile")
    again = [first_refusal(machine) for _ in range(3)]
    assert [one.said.returncode for one in again] == [STORAGE] * 3
    failing_disk.heal()
    for task_id in (running, *accepted, *(task_id for one in again for task_id in one.accepted)):
        assert becomes(machine, task_id, "completed")["attempt"] == 1
    becomes(machine, create(machine, "test.sleep", "seconds=0"), "completed")
    eventually(lambda: not scopes(machine), "nothing is left")
    assert main_pid(machine) == pid, "it was not replaced for it"
    assert aiosctl(machine, "state", "check").returncode == 0
    assert aiosctl(machine, "audit", "verify").returncode == 0
    note(
        "faults", "fsync(2) fails with EIO",
        f"creation refused {1 + len(again)} times (exit status {STORAGE}); reading works; the task that ends then "
        "completes, and so does what was accepted last, 1 attempt each; works again with the disk, not restarted",
    )  # fmt: skip


def test_turned_read_only_under_it(machine: Container, failing_disk: FailingDisk) -> None:
    """The kernel lets nobody write until the file system is mounted anew, for which the daemon has to stop."""
    kept = create(machine, "test.sleep", "seconds=0")
    becomes(machine, kept, "completed")
    running = create(machine, "test.sleep", "seconds=3")
    starts(machine, running)
    unit = unit_of(machine, running)
    pid = main_pid(machine)
    failing_disk.turn_read_only()
    done, accepted = first_refusal(machine)
    assert done.returncode == STORAGE, done.stderr + done.stdout
    assert task(machine, kept)["status"] == "completed", "what is there can be read"
    eventually(lambda: unit not in scopes(machine), "the running task has come to its end meanwhile")
    assert first_refusal(machine).said.returncode == STORAGE
    assert main_pid(machine) == pid, "it goes on serving what it can"
    machine.run("systemctl", "stop", *SERVICE)
    machine.sh(f"umount {STATE} && cp -a {PLACE}/. {STATE}/ && mount --bind {STATE} {STATE}")
    machine.run("systemctl", "start", *SERVICE)
    serves(machine)
    assert becomes(machine, running, "completed")["attempt"] == 1, "its result was on the other disk"
    for task_id in accepted:
        assert becomes(machine, task_id, "completed")["attempt"] == 1
    assert aiosctl(machine, "state", "check").returncode == 0
    note(
        "faults", "file system turned read-only by the kernel under it",
        f"creation refused (exit status {done.returncode}); reading works, not restarted; the task that ends meanwhile "
        "completes, 1 attempt, on a file system that can be written",
    )  # fmt: skip
