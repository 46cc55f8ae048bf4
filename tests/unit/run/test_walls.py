"""The system call filter, run by an interpreter of its instructions; and what Landlock does, on this kernel."""

from __future__ import annotations

import errno
import platform
import re
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.run import landlock, seccomp

if TYPE_CHECKING:
    from tests.unit.run.shimrig import Rig

I386, ARM32 = 0x40000003, 0x40000028
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}
ALLOW = 0
KILL = -1


def judged(machine: str, number: int, *arguments: int, audit: int | None = None, **how: bool) -> int:
    """What the filter says to a call: an errno, ALLOW or KILL. Classic BPF (Linux, networking/filter)."""
    code = seccomp.program(machine, **{"confined": True, "route_only": False, "no_network": False, **how})
    six = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=iIQ6Q", number, MACHINES[machine] if audit is None else audit, 0, *six)
    accumulator = place = 0
    while True:
        operation, then, otherwise, value = struct.unpack_from("=HBBI", code, place * 8)
        place += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif operation == 0x06:
            verdicts = {0x7FFF0000: ALLOW, 0x80000000: KILL}
            return verdicts.get(value, int(value) & 0xFFFF)
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            place += then if test else otherwise


# by name: x86-64's number, arm64's and riscv64's (asm/unistd.h)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("x86", "generic"),
    [(165, 40), (166, 39), (161, 51), (272, 97), (308, 268), (101, 117), (310, 270), (321, 280), (250, 219), (425, 425),
     (428, 428), (438, 438), (175, 105), (246, 104), (323, 282), (298, 241)],
)  # fmt: skip
def test_what_is_refused(machine: str, x86: int, generic: int) -> None:
    assert judged(machine, x86 if machine == "x86_64" else generic) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("x86", "generic"),
    [(0, 63), (1, 64), (59, 221), (41, 198), (53, 199), (257, 56), (9, 222), (231, 94), (62, 129), (202, 98), (16, 29)],
)  # fmt: skip
def test_what_every_program_needs_is_not(machine: str, x86: int, generic: int) -> None:
    assert judged(machine, x86 if machine == "x86_64" else generic, 2) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_threads_and_children_but_no_namespaces(machine: str) -> None:
    clone = 56 if machine == "x86_64" else 220
    threads, children = 0x003D0F00, 0x01200011  # as glibc calls it for pthread_create(3) and fork(2)
    assert judged(machine, clone, threads) == ALLOW
    assert judged(machine, clone, children) == ALLOW
    for namespace in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert judged(machine, clone, children | namespace) == errno.EPERM
    assert judged(machine, 435) == errno.ENOSYS  # clone3: the C library then uses clone


@pytest.mark.parametrize("machine", MACHINES)
def test_limits_and_priorities_are_set_for_oneself_only(machine: str) -> None:
    """By name: prlimit64, sched_setscheduler, sched_setparam, sched_setattr; setpriority, ioprio_set."""
    column = 0 if machine == "x86_64" else 1
    for numbers in ((302, 261), (144, 119), (142, 118), (314, 274)):
        assert judged(machine, numbers[column], 0, 7) == ALLOW
        assert judged(machine, numbers[column], 4711, 7) == errno.EPERM
    for numbers, process, user in (((141, 140), 0, 2), ((251, 30), 1, 3)):
        assert judged(machine, numbers[column], process, 0, 10) == ALLOW
        assert judged(machine, numbers[column], process + 1, 0, 10) == ALLOW  # its group of processes
        assert judged(machine, numbers[column], process, 4711, 10) == errno.EPERM
        assert judged(machine, numbers[column], user, 0, 10) == errno.EPERM  # all of its user's


def test_no_other_table_of_system_calls() -> None:
    assert judged("x86_64", 0x40000000 + 39) == KILL
    assert judged("x86_64", 20, audit=I386) == KILL
    assert judged("aarch64", 20, audit=ARM32) == KILL


FOREIGN = "import ctypes; ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 + 39))"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64's own other table")
def test_a_call_by_another_table_ends_the_program(rig: Rig) -> None:
    run = rig.run(list(rig.python(FOREIGN).argv), view={"confined": True})
    assert run.wait().signal == "SIGSYS"


@pytest.mark.parametrize("confined", [False, True])
@pytest.mark.parametrize("machine", MACHINES)
def test_route_sockets_only(machine: str, *, confined: bool) -> None:
    number = 41 if machine == "x86_64" else 198
    how = {"route_only": True, "confined": confined}
    assert judged(machine, number, 16, 3, 0, **how) == ALLOW
    assert judged(machine, number, 16, 3, 16, **how) == errno.EAFNOSUPPORT  # NETLINK_GENERIC
    for family in (1, 2, 10, 17, 38, 40):
        assert judged(machine, number, family, 1, 0, **how) == errno.EAFNOSUPPORT
    assert judged(machine, 425, **how) == errno.EPERM
    assert judged(machine, 39 if machine == "x86_64" else 172, **how) == ALLOW  # getpid


@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_network_no_family_that_knows_no_namespace(machine: str) -> None:
    """UNIX, INET, INET6, NETLINK; then AX25, PACKET, RDS, CAN, TIPC, BLUETOOTH, ALG, VSOCK, QIPCRTR, XDP."""
    number = 41 if machine == "x86_64" else 198
    for family in (1, 2, 10, 16):
        assert judged(machine, number, family, 1, 0, no_network=True) == ALLOW
    for family in (3, 17, 21, 29, 30, 31, 38, 40, 42, 44):
        assert judged(machine, number, family, 1, 0, no_network=True) == errno.EAFNOSUPPORT
        assert judged(machine, number, family, 1, 0) == ALLOW


def test_only_the_way_round_is_refused_to_one_that_is_not_confined() -> None:
    assert judged("x86_64", 165, route_only=True, confined=False) == ALLOW


def test_no_filter_no_program() -> None:
    with pytest.raises(OSError, match="no system call filter for vax"):
        seccomp.program("vax", confined=True, route_only=False, no_network=False)


TOLD = """
import os, resource, sys
def told(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "done"
"""
"""What became of a call, for programs that try some."""

PROBE = (
    TOLD
    + """pid = int(sys.argv[1])
print(told(lambda: os.kill(pid, 0)), told(lambda: os.listdir(f"/proc/{pid}/root")))
print(told(lambda: os.kill(os.getppid(), 0)), told(lambda: os.kill(os.getpid(), 0)))
"""
)


LIMIT = (
    TOLD
    + """pid, shim, soon = int(sys.argv[1]), os.getppid(), (1, 1)
print(told(lambda: resource.prlimit(pid, resource.RLIMIT_CPU, soon)))
print(told(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)), told(lambda: os.setpriority(os.PRIO_PROCESS, shim, 19)))
print(told(lambda: os.sched_setscheduler(shim, os.SCHED_IDLE, os.sched_param(0))))
print(told(lambda: os.nice(5)), told(lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))))
print(told(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))))
"""
)


@pytest.mark.parametrize(
    ("confined", "expected"), [(False, "done " * 4), (True, "PermissionError " * 4)], ids=["unconfined", "confined"]
)
def test_nobody_else_is_given_a_limit_or_a_priority(rig: Rig, expected: str, *, confined: bool) -> None:
    """The neighbour a second to live and the lowest priority, the shim the lowest and what is below; itself, three."""
    account = rig.spec([]).account
    with subprocess.Popen(["sleep", "60"], user=account.uid, group=account.gid, extra_groups=[]) as neighbour:
        try:
            argv = (*rig.python(LIMIT).argv, str(neighbour.pid))
            told = rig.run(list(argv), view={"confined": confined}).stdout().decode().split()
            assert told == [*expected.split(), "done", "done", "done"]
            limits = Path(f"/proc/{neighbour.pid}/limits").read_text()
            assert bool(re.search(r"Max cpu time +1 +1 ", limits)) is not confined
        finally:
            neighbour.kill()


@pytest.mark.skipif(landlock.version() < 6, reason="Landlock here bounds no signals")
@pytest.mark.parametrize(
    ("confined", "expected"),
    [(False, "done done PermissionError done"), (True, "PermissionError PermissionError PermissionError done")],
)
def test_the_callers_other_processes_and_the_shim(rig: Rig, expected: str, *, confined: bool) -> None:
    """Neighbour signalled, its root looked into; shim signalled; itself signalled."""
    account = rig.spec([]).account
    with subprocess.Popen(["sleep", "60"], user=account.uid, group=account.gid, extra_groups=[]) as neighbour:
        try:
            argv = (*rig.python(PROBE).argv, str(neighbour.pid))
            assert rig.run(list(argv), view={"confined": confined}).stdout().decode().split() == expected.split()
        finally:
            neighbour.kill()
