"""Faults of the machine around the daemon: what callers are told, what goes on, and that it comes back by itself.

These have a box of their own: its bus, its journal and the daemon's disk are taken away here.
"""

from __future__ import annotations

import json
import os
import random
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
DATABASE = f"{STATE}/aiosd.db"
CAPABILITIES = "/run/aios/capabilities.d"
MARKS = "/var/tmp/aiosd-marks"
CONFIG = "/run/aios/aiosd.conf.d/50-test.conf"
DROP_IN = "/run/systemd/system/aiosd.service.d"
FINALS = ("completed", "failed", "canceled")
STORAGE = 74
"""aiosctl's exit status when the store cannot be written (EX_IOERR)."""
LOAD_SECONDS = 12.0
PATIENCE = 40.0


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


def create_if_it_can(box: Container) -> None:
    aiosctl(box, "run", "test.sleep", "seconds=0", "--wait")


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


def serves(box: Container) -> None:
    def well() -> bool:
        done = aiosctl(box, "status", "--json")
        return done.returncode == 0 and json.loads(done.stdout)["launcher"]["connected"]

    eventually(well, "aiosd serves")


def scopes(box: Container) -> list[str]:
    shown = box.run("systemctl", "list-units", "--plain", "--no-legend", "aios-task-*.scope").stdout
    return [line.split()[0] for line in shown.splitlines()]


def sql(box: Container, statement: str) -> None:
    program = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit()"
    box.run(
        "setpriv", "--reuid=aiosd", "--regid=aiosd", "--clear-groups", "python3", "-c", program, DATABASE, statement
    )


# -- killed at random ------------------------------------------------------------------------------------------------

BLOWS = (
    ("systemctl", "kill", "--signal=KILL", "aiosd.service"),
    ("systemctl", "kill", "--signal=KILL", "aiosd.service"),
    ("systemctl", "kill", "--signal=KILL", "aios-launcher.service"),
    ("systemctl", "restart", "aiosd.service"),
    ("systemctl", "daemon-reexec"),
)


def test_killed_at_random_under_load(machine: Container) -> None:
    """Tasks that may not run twice are created meanwhile: each that was promised ran once and says so."""
    machine.run("rm", "-f", MARKS)
    seed = int(time.time())
    chance = random.Random(seed)  # noqa: S311  choices that can be made again
    promised: list[str] = []
    blows = 0
    deadline = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < deadline:
        for _ in range(chance.randrange(1, 4)):
            done = aiosctl(machine, "run", "test.mark", "--json")
            if done.returncode == 0:
                promised.append(str(json.loads(done.stdout.splitlines()[0])["task_id"]))
        time.sleep(chance.random() * 0.2)
        machine.run(*chance.choice(BLOWS), check=False)
        machine.run("systemctl", "reset-failed", "aiosd.service", "aios-launcher.service", check=False)
        blows += 1
    serves(machine)
    ended = [becomes(machine, task_id, "completed") for task_id in promised]
    ran = machine.read(MARKS).split()
    print(f"seed {seed}: {blows} blows, {len(promised)} promised, {len(ran)} ran, {len(ended)} completed")
    assert sorted(set(ran)) == sorted(ran), "one ran twice"
    assert set(promised) <= set(ran)
    eventually(lambda: not scopes(machine), "no scope is left")
    assert aiosctl(machine, "state", "check").returncode == 0
    assert aiosctl(machine, "audit", "verify").returncode == 0


def test_a_killed_shim_is_a_lost_run_and_leaves_no_process(machine: Container) -> None:
    task_id = create(machine, "test.sleep", "seconds=300")
    becomes(machine, task_id, "working")
    eventually(lambda: bool(scopes(machine)), "its scope is there")
    group = machine.run("systemctl", "show", "--value", "--property=ControlGroup", scopes(machine)[0]).stdout.strip()
    pids = machine.read(f"/sys/fs/cgroup{group}/cgroup.procs").split()
    (shim,) = [pid for pid in pids if "sleep" not in machine.read(f"/proc/{pid}/cmdline")]
    machine.run("kill", "-KILL", shim)
    shown = becomes(machine, task_id, "failed")
    assert shown["reason"] == "supervisor-died"
    eventually(lambda: not scopes(machine), "no scope is left")


def test_a_shutdown_of_the_machine_would_wait(machine: Container) -> None:
    """logind knows of the lock; that it is let go in time is tests/bus/test_shutdown.py's."""
    shown = machine.run(
        "busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
        "ListInhibitors",
    ).stdout  # fmt: skip
    assert '"shutdown" "aiosd"' in shown
    assert '"delay"' in shown


# -- what it talks to goes away --------------------------------------------------------------------------------------


def test_the_bus_goes_and_comes_back(machine: Container) -> None:
    task_id = create(machine, "test.sleep", "seconds=4")
    becomes(machine, task_id, "working")
    machine.run("systemctl", "kill", "--signal=KILL", "dbus.service")
    machine.run("systemctl", "start", "dbus.service", check=False)
    serves(machine)
    machine.run("systemctl", "restart", "systemd-logind.service", "polkit.service")
    shown = becomes(machine, task_id, "completed")
    assert shown["attempt"] == 1


def test_without_polkit_nobody_gets_more_and_public_works(machine: Container) -> None:
    machine.run("systemctl", "mask", "--runtime", "--now", "polkit.service")
    try:
        refused = aiosctl(machine, "run", "test.look.medium", user="alice")
        assert refused.returncode not in (0, 1), refused.stderr
        assert "aiosctl:" in refused.stderr
        assert aiosctl(machine, "run", "test.sleep", "seconds=0", "--wait").returncode == 0
    finally:
        machine.run("systemctl", "unmask", "--runtime", "polkit.service")
        machine.run("systemctl", "start", "polkit.service")


def test_without_a_journal_tasks_run(machine: Container) -> None:
    task_id = create(machine, "test.sleep", "seconds=1")
    machine.run("systemctl", "kill", "--signal=KILL", "systemd-journald.service")
    assert aiosctl(machine, "run", "test.sleep", "seconds=0", "--wait").returncode == 0
    becomes(machine, task_id, "completed")


# -- its database ----------------------------------------------------------------------------------------------------


def test_a_newer_programs_database_is_read_and_not_written(machine: Container) -> None:
    kept = create(machine, "test.sleep", "seconds=0")
    becomes(machine, kept, "completed")
    machine.run("rm", "-f", "/root/copy.db")
    assert aiosctl(machine, "state", "backup", "/root/copy.db").returncode == 0
    busy = aiosctl(machine, "state", "restore", "/root/copy.db")
    assert (busy.returncode, "aiosd is running" in busy.stderr) == (75, True)
    machine.run("systemctl", "stop", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    sql(machine, "UPDATE meta SET value = 99 WHERE key = 'level'")
    machine.run("systemctl", "start", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    text = machine.run("systemctl", "show", "--value", "--property=StatusText", "aiosd.service").stdout
    assert text.startswith("Only reading: the database has version 99"), text
    assert "READ ONLY" in aiosctl(machine, "status").stdout
    assert task(machine, kept)["status"] == "completed"
    refused = aiosctl(machine, "run", "test.sleep", "seconds=0")
    assert refused.returncode == STORAGE, refused.stderr
    assert "version 99" in refused.stderr
    machine.run("systemctl", "stop", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    restored = aiosctl(machine, "state", "restore", "/root/copy.db")
    assert restored.returncode == 0, restored.stderr
    machine.run("systemctl", "start", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    assert task(machine, kept)["status"] == "completed"


DAMAGE = {
    "random bytes": f"dd if=/dev/urandom of={DATABASE} bs=4096 seek=2 count=20 conv=notrunc",
    "torn pages": f"for page in $(seq 9 40); do dd if=/dev/zero of={DATABASE} bs=512 seek=$((page * 8)) count=3"
    " conv=notrunc; done",
    "cut short": f"truncate -s 20480 {DATABASE}",
    "no database at all": f"dd if=/dev/urandom of={DATABASE} bs=4096 count=1 conv=notrunc",
    "half a log": f"cp /root/left-wal {DATABASE}-wal && truncate -s 5000 {DATABASE}-wal && chown aiosd: {DATABASE}-wal",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_database_is_no_boot_loop(damage: str, machine: Container) -> None:
    for _ in range(3):
        becomes(machine, create(machine, "test.sleep", "seconds=0"), "completed")
    machine.run("cp", f"{DATABASE}-wal", "/root/left-wal")
    machine.run("systemctl", "stop", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    machine.sh(f"rm -rf {DATABASE}.broken-*")
    machine.sh(DAMAGE[damage])
    machine.run("systemctl", "start", "aiosd.socket", "aiosd-lines.socket", "aiosd.service", check=False)
    serves(machine)
    for _ in range(3):  # damage that is met on the way is as good as damage that is met at the start
        aiosctl(machine, "list", "--all")
        create_if_it_can(machine)
    time.sleep(1)
    serves(machine)
    restarts = machine.run("systemctl", "show", "--value", "--property=NRestarts", "aiosd.service").stdout
    assert int(restarts) <= 1, "a boot loop"
    assert aiosctl(machine, "state", "check").returncode == 0
    aside = machine.sh(f"ls {STATE} | grep -c broken- || true").strip()
    if damage != "half a log":  # what a crash may leave: SQLite takes the commits that are whole
        assert int(aside) > 0, "it is kept"
        said = machine.run("journalctl", "--unit=aiosd.service", "--no-pager", "--lines=200").stdout
        assert "was damaged" in said


# -- its disk --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(machine: Container) -> Iterator[Container]:
    """The daemon's state on a file system of a few megabytes."""
    machine.run("systemctl", "stop", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    machine.sh(
        f"mkdir -p /root/state && cp -a {STATE}/. /root/state/ && rm -rf /root/state/aiosd.db.*-2*"
        f" && mount -t tmpfs -o size=16m,mode=700,uid=$(id -u aiosd),gid=$(id -g aiosd) small {STATE}"
        f" && cp -a /root/state/. {STATE}/"
    )
    machine.run("systemctl", "start", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    try:
        yield machine
    finally:
        machine.run("systemctl", "stop", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
        machine.run("umount", STATE)
        machine.run("systemctl", "start", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")


def test_a_full_disk_is_told_and_running_tasks_go_on(small_disk: Container) -> None:
    running = create(small_disk, "test.sleep", "seconds=3")
    becomes(small_disk, running, "working")
    small_disk.sh(f"dd if=/dev/zero of={STATE}/fill bs=64k 2>/dev/null || true")
    codes = set()
    for _ in range(40):
        done = aiosctl(small_disk, "run", "test.sleep", "seconds=0", "--json")
        codes.add(done.returncode)
        if done.returncode:
            break
    assert codes - {0} == {STORAGE}, done.stderr + done.stdout
    assert "disk is full" in done.stdout + done.stderr
    assert aiosctl(small_disk, "list").returncode == 0, "what is there can be read"
    time.sleep(4)
    assert small_disk.run("systemctl", "is-active", "aiosd.service").stdout == "active\n"
    small_disk.run("rm", f"{STATE}/fill")
    assert becomes(small_disk, running, "completed")["attempt"] == 1
    becomes(small_disk, create(small_disk, "test.sleep", "seconds=0"), "completed")
    assert aiosctl(small_disk, "state", "check").returncode == 0


def test_a_disk_that_cannot_be_written_at_the_start_is_waited_for(small_disk: Container) -> None:
    small_disk.run("systemctl", "stop", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    small_disk.run("mount", "-o", "remount,ro", STATE)
    small_disk.run("systemctl", "start", "aiosd.socket", "aiosd-lines.socket", check=False)
    small_disk.run("systemctl", "start", "aiosd.service", check=False)
    time.sleep(1)
    small_disk.run("mount", "-o", "remount,rw", STATE)
    serves(small_disk)


def test_without_descriptors_it_lives_on(machine: Container) -> None:
    """A limit so low that not three tasks at a time can be followed, which take a control socket and a pidfd each."""
    pid = machine.run("systemctl", "show", "--value", "--property=MainPID", "aiosd.service").stdout.strip()
    held = int(machine.sh(f"ls /proc/{pid}/fd | wc -l"))
    machine.sh(f"mkdir -p {DROP_IN} && printf '[Service]\\nLimitNOFILE={held + 3}\\n' >{DROP_IN}/low.conf")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "aiosd.service")
    try:
        serves(machine)
        done = [aiosctl(machine, "run", "test.sleep", "seconds=1", "--json") for _ in range(4)]
        made = [str(json.loads(one.stdout.splitlines()[0])["task_id"]) for one in done if one.returncode == 0]
        time.sleep(3)
    finally:
        machine.run("rm", f"{DROP_IN}/low.conf")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "restart", "aiosd.service")
    serves(machine)
    for task_id in made:
        eventually(lambda task_id=task_id: task(machine, task_id).get("status") in FINALS, "it ends")  # type: ignore[misc]  # bound
    ends = [str(task(machine, task_id)["status"]) for task_id in made]
    print(f"descriptors: {held} + 3, aiosctl run ended with {[one.returncode for one in done]}, tasks: {ends}")
    assert ends == ["completed"] * len(made)
    assert made


# -- told to stop ----------------------------------------------------------------------------------------------------


def test_drained_nothing_starts_until_it_is_lifted(machine: Container) -> None:
    running = create(machine, "test.sleep", "seconds=2")
    becomes(machine, running, "working")
    assert aiosctl(machine, "drain", user="alice").returncode == 77
    assert aiosctl(machine, "drain").returncode == 0
    waiting = create(machine, "test.sleep", "seconds=0")
    assert aiosctl(machine, "drain", "--wait").returncode == 0
    assert task(machine, running)["status"] == "completed"
    assert "draining" in aiosctl(machine, "status").stdout
    shown = task(machine, waiting)
    assert (shown["status"], shown.get("waiting_for")) == ("pending", "draining")
    assert aiosctl(machine, "drain", "--lift").returncode == 0
    becomes(machine, waiting, "completed")


@pytest.mark.parametrize("along", [False, True], ids=["left alone", "stopped"])
def test_stopped_tasks_run_on_or_are_taken_along(along: bool, machine: Container) -> None:  # noqa: FBT001
    machine.sh(f"mkdir -p {os.path.dirname(CONFIG)}")  # noqa: PTH120  a path in the box
    machine.write(CONFIG, f"[Scheduler]\nstop_tasks_on_stop={'yes' if along else 'no'}\n")
    machine.run("systemctl", "reload", "aiosd.service")
    task_id = create(machine, "test.sleep", "seconds=300")
    becomes(machine, task_id, "working")
    eventually(lambda: bool(scopes(machine)), "its scope is there")
    begun = time.monotonic()
    machine.run("systemctl", "stop", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    assert time.monotonic() - begun < 60, "nothing near systemd's own limit of 90 s"
    assert machine.run("systemctl", "is-failed", "aiosd.service", check=False).stdout == "inactive\n"
    assert bool(scopes(machine)) is not along
    machine.run("rm", CONFIG)
    machine.run("systemctl", "start", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    if along:
        assert becomes(machine, task_id, "canceled")["reason"] == "daemon-stopped"
    else:
        becomes(machine, task_id, "working")
        assert aiosctl(machine, "cancel", task_id).returncode == 0
