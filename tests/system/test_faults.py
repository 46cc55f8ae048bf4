"""Faults of the machine around the daemon: what callers are told, what goes on, and that it comes back by itself.

These have a box of their own: its bus, its journal and the daemon's disk are taken away here.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from aiosd.client import CallError, Client, ProtocolError
from tests.outcomes import note
from tests.system.caller import MARKS
from tests.system.trouble import (
    FINALS,
    PATIENCE,
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

    from tests.rig.container import Container

DATABASE = f"{STATE}/aiosd.db"
CONFIG = "/run/aios/aiosd.conf.d/50-test.conf"
DROP_IN = "/run/systemd/system/aiosd.service.d"
FLOOD = 10_000
LOAD_SECONDS = float(os.environ.get("AIOSD_LOAD_SECONDS", "12"))

__all__ = ["machine", "well_afterwards"]
"""Fixtures."""


def sql(box: Container, statement: str) -> None:
    program = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit()"
    box.run(
        "setpriv", "--reuid=aiosd", "--regid=aiosd", "--clear-groups", "python3", "-c", program, DATABASE, statement
    )


def create_if_it_can(box: Container) -> None:
    aiosctl(box, "run", "test.sleep", "seconds=0", "--wait")


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
    twice = len(ran) - len(set(ran))
    assert sorted(set(ran)) == sorted(ran), "one ran twice"
    assert set(promised) <= set(ran)
    eventually(lambda: not scopes(machine), "no scope is left")
    assert aiosctl(machine, "state", "check").returncode == 0
    assert aiosctl(machine, "audit", "verify").returncode == 0
    note(
        "faults", "aiosd, launcher killed or restarted, systemd executed again, at random under load",
        f"{LOAD_SECONDS:.0f} s, {blows} blows; of {len(promised)} tasks promised that may not run twice "
        f"{len(set(ran))} ran, {twice} of them twice, {len(ended)} completed; no scope left, store and trail sound",
    )  # fmt: skip


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
    note("faults", "shim killed", "its task failed, `supervisor-died`; its processes gone, no scope left")


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
    starts(machine, task_id)
    machine.run("systemctl", "kill", "--signal=KILL", "dbus.service")
    machine.run("systemctl", "start", "dbus.service", check=False)
    serves(machine)
    machine.run("systemctl", "restart", "systemd-logind.service", "polkit.service")
    shown = becomes(machine, task_id, "completed")
    assert shown["attempt"] == 1
    note(
        "faults", "dbus-daemon killed",
        f"daemon ends and comes back; the running task completes, {shown['attempt']} attempt",
    )  # fmt: skip


def test_without_polkit_nobody_gets_more_and_public_works(machine: Container) -> None:
    machine.run("systemctl", "mask", "--runtime", "--now", "polkit.service")
    try:
        refused = aiosctl(machine, "run", "test.look.medium", user="alice")
        assert refused.returncode not in (0, 1), refused.stderr
        assert "aiosctl:" in refused.stderr
        assert aiosctl(machine, "run", "test.sleep", "seconds=0", "--wait").returncode == 0
        note(
            "faults", "polkit gone",
            f"what needs it is refused (exit status {refused.returncode}); a public capability runs",
        )  # fmt: skip
    finally:
        machine.run("systemctl", "unmask", "--runtime", "polkit.service")
        machine.run("systemctl", "start", "polkit.service")


def test_without_a_journal_tasks_run(machine: Container) -> None:
    task_id = create(machine, "test.sleep", "seconds=1")
    machine.run("systemctl", "kill", "--signal=KILL", "systemd-journald.service")
    assert aiosctl(machine, "run", "test.sleep", "seconds=0", "--wait").returncode == 0
    becomes(machine, task_id, "completed")
    note("faults", "journald killed", "a task that runs completes, a new one too")


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
    note(
        "faults", "database of a newer level",
        f"reads served, changes refused (`StorageError`, exit status {refused.returncode}), said in `systemctl status` "
        "and `aiosctl status`; `aiosctl state restore` brings it back",
    )  # fmt: skip


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
    kept = "moved aside and salvaged, said in the journal" if int(aside) else "the whole commits in it are kept"
    note("faults", f"database: {damage}", f"{kept}; restarts: {restarts.strip()}; sound afterwards")


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
    starts(small_disk, running)
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
    note(
        "faults", "disk full",
        f'creation refused, "the disk is full" (exit status {done.returncode}); reading works; the running task '
        "completes, 1 attempt; writes work again as soon as there is room",
    )  # fmt: skip


def test_a_disk_that_cannot_be_written_at_the_start_is_waited_for(small_disk: Container) -> None:
    small_disk.run("systemctl", "stop", "aiosd.socket", "aiosd-lines.socket", "aiosd.service")
    small_disk.run("mount", "-o", "remount,ro", STATE)
    small_disk.run("systemctl", "start", "aiosd.socket", "aiosd-lines.socket", check=False)
    small_disk.run("systemctl", "start", "aiosd.service", check=False)
    time.sleep(1)
    small_disk.run("mount", "-o", "remount,rw", STATE)
    serves(small_disk)
    note("faults", "disk read-only at the start", "tried again; serves once it can write")


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
    note(
        "faults", "descriptors: three more than it holds when idle",
        f"{len(made)} of {len(done)} tasks created; {ends.count('completed')} completed once the limit was back",
    )  # fmt: skip


def test_without_memory_nothing_hangs_and_nothing_is_lost(machine: Container) -> None:
    """Not a byte more for the daemon while sixty callers want much of it: each is answered, refused or cut off.

    It may die of that, as any program may; then it is started again, and the running task does not notice.
    """
    pid = machine.run("systemctl", "show", "--value", "--property=MainPID", "aiosd.service").stdout.strip()
    running = create(machine, "test.sleep", "seconds=5")
    starts(machine, running)
    socket = f"/proc/{machine.leader.pid}/root/run/aios/aios.sock"
    with Client(socket) as client:
        client.call("aios/service.status")  # what speaks HTTP is there already
    promised: list[str] = []
    ends: Counter[str] = Counter()

    def ask() -> None:
        try:
            with Client(socket, timeout=PATIENCE) as client:
                for _ in range(4):
                    made = client.create("test.sleep", {"seconds": 0}, metadata={"much": "x" * 50_000})
                    promised.append(str(made["task_id"]))
                    client.list(limit=100)
            ends["answered"] += 1
        except (OSError, CallError, ProtocolError) as error:
            ends[type(error).__name__] += 1

    machine.run("prlimit", f"--pid={pid}", f"--as={1 << 20}:", user="aiosd")
    callers = [threading.Thread(target=ask) for _ in range(60)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    machine.run("prlimit", f"--pid={pid}", "--as=unlimited:", user="aiosd", check=False)
    serves(machine)
    restarts = machine.run("systemctl", "show", "--value", "--property=NRestarts", "aiosd.service").stdout.strip()
    print(f"without memory: callers {dict(ends)}, {len(promised)} promised, restarts {restarts}")
    assert "TimeoutError" not in ends, "a caller was left hanging"
    assert becomes(machine, running, "completed")["attempt"] == 1
    with Client(socket, timeout=PATIENCE) as client:
        ended = [client.wait(task_id) for task_id in promised]
    # What could not be started for want of memory says so; it may be asked for again.
    assert all(task["status"] == "completed" or (task["status"] == "failed" and task.get("reason")) for task in ended)
    completed = sum(task["status"] == "completed" for task in ended)
    assert aiosctl(machine, "state", "check").returncode == 0
    note(
        "faults", "memory: not a byte more while 60 callers want much of it",
        f"callers: {', '.join(f'{count} {name}' for name, count in sorted(ends.items()))}; none hangs; restarts: "
        f"{restarts}; the running task completes, 1 attempt; {len(promised)} tasks promised, {completed} completed",
    )  # fmt: skip


def test_ten_thousand_creations_of_one_user_starve_nobody(machine: Container) -> None:
    """Another user's tasks are created and complete meanwhile; the daemon's memory does not grow with what is asked."""
    pid = machine.run("systemctl", "show", "--value", "--property=MainPID", "aiosd.service").stdout.strip()

    def memory(what: str) -> int:
        return int(machine.sh(f"awk '/^{what}:/ {{print $2}}' /proc/{pid}/status")) // 1024

    before = memory("VmRSS")
    environment = {"PYTHONPATH": "/src", "PYTHONDONTWRITEBYTECODE": "1"}
    others = 0
    with machine.popen("python3", "-m", "tests.system.flood", str(FLOOD), user="alice", env=environment) as flood:
        while flood.poll() is None:
            done = aiosctl(machine, "run", "test.sleep", "seconds=0", "--wait", "--priority=high", user="bob")
            assert done.returncode == 0, done.stderr
            others += 1
        assert flood.stdout is not None
        ends: dict[str, int] = json.loads(flood.stdout.read())
    assert sum(ends.values()) == FLOOD
    assert ends.keys() <= {"answered", "AIOS-RATE-LIMITED", "AIOS-QUEUE-FULL", "AIOS-RESOURCE-BUSY"}, ends
    assert others, "nobody else came"
    grown = memory("VmHWM") - before
    assert grown < 64, f"{grown} MiB more than before"
    assert machine.run("systemctl", "show", "--value", "--property=MainPID", "aiosd.service").stdout.strip() == pid
    note(
        "faults", "10 000 creations at once by one user",
        f"{', '.join(f'{count} {name}' for name, count in sorted(ends.items()))}; meanwhile {others} of {others} tasks "
        f"of another user completed; at most {grown} MiB more than before, the daemon not restarted",
    )  # fmt: skip


# -- told to stop ----------------------------------------------------------------------------------------------------


def test_drained_nothing_starts_until_it_is_lifted(machine: Container) -> None:
    running = create(machine, "test.sleep", "seconds=2")
    starts(machine, running)
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
    note("faults", "drain", "nothing starts, new tasks wait (`draining`), running ones end; `--lift` starts them")


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
        note("faults", "`systemctl stop`, *stop_tasks_on_stop*", "within 7 s; the task is canceled, `daemon-stopped`")
    else:
        starts(machine, task_id)
        assert aiosctl(machine, "cancel", task_id).returncode == 0
        note("faults", "`systemctl stop`", "within 7 s; the running task runs on and is steered again afterwards")
