"""What no task below level critical may ask of the kernel (seccomp(2)): a list of what is refused, with EPERM.

Standard library only. Refused is what changes mounts, namespaces or the kernel, what looks into other processes, and
what has no use in a task but a long history of holes. `route_only` is the network `netlink`: of all sockets only
NETLINK_ROUTE ones can be made; socket pairs are another system call and stay possible. `no_network`, in a network
namespace with nobody in it, leaves the families that such a namespace bounds: others know none, AF_VSOCK reaches the
machine's host from anywhere. What would be a way around is refused, too: io_uring (it makes sockets of its own) and
taking descriptors out of other processes. Limits and priorities a program sets for itself only, as process 0: nothing
else keeps it from giving another process of its user a limit that ends it (RLIMIT_CPU: SIGKILL), or that and its shim a
priority that is never to be had back. CPU affinity is left: threads are placed with it by their numbers, and who was
moved can move back. A call by another
system call table of the machine kills the program (SIGSYS), as SystemCallArchitectures= of systemd.exec(5) does: no
program of this machine does it by mistake. clone3(2) hides its flags from a filter and is "not there", so that the C
library uses clone(2).
On a machine that is not in the table nothing runs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from functools import cache
from typing import NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_SECCOMP = 22
_MODE_FILTER = 2

_X32_BIT = 0x40000000
_BOUNDED_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK (linux/socket.h)."""
_AF_NETLINK = 16
_NETLINK_ROUTE = 0
_CLONE_NEW = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
"""CLONE_NEWCGROUP, -UTS, -IPC, -USER, -PID, -NET, -NS (linux/sched.h)."""

# linux/bpf_common.h, linux/filter.h: load a word; jump when equal, when at least, when any bit is set; return
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# linux/seccomp.h: offsets in struct seccomp_data, little-endian low halves of the arguments; what to do
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 24, 32
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

_REFUSED = {
    # mounts and roots: x86-64's number, the generic table's (arm64, riscv64)
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "swapon": (167, 224),
    "swapoff": (168, 225), "quotactl": (179, 60), "quotactl_fd": (443, 443), "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # namespaces
    "unshare": (272, 97), "setns": (308, 268), "sethostname": (170, 161), "setdomainname": (171, 162),
    # the kernel itself, its clock, its log
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "bpf": (321, 280), "perf_event_open": (298, 241),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "acct": (163, 89), "syslog": (103, 116),
    "lookup_dcookie": (212, 18), "vhangup": (153, 58), "nfsservctl": (180, 42), "iopl": (172, None),
    "ioperm": (173, None), "uselib": (134, None), "_sysctl": (156, None),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # keys that outlive the task; ways round this filter; much attacked
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "userfaultfd": (323, 282),
}  # fmt: skip
_OF_ITSELF = {
    "prlimit64": (302, 261), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274)
}  # fmt: skip
"""Whose first argument is a process: 0, or the call is refused."""

_OF_ITSELF_OR_GROUP = {"setpriority": ((141, 140), 2), "ioprio_set": ((251, 30), 3)}
"""Whose first argument says what the second is, with the value from which on it is a user: that, and whatever is not 0,
is refused (getpriority(2), ioprio_get(2))."""

_WAYS_ROUND = frozenset({"io_uring_setup", "pidfd_getfd"})


class _Machine(NamedTuple):
    """linux/audit.h's name of the system call table, the column of `_REFUSED`, and numbers in the table."""

    audit: int
    column: int
    socket: int
    clone: int
    clone3: int = 435


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 0, 41, 56),
    "aarch64": _Machine(0xC00000B7, 1, 198, 220),
    "riscv64": _Machine(0xC00000F3, 1, 198, 220),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class _Code:
    """Instructions, and the places that they jump to: forward only, at most 255 ahead."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, str | None, str | None]] = []
        self._places: dict[str, int] = {}

    def load(self, offset: int) -> None:
        """Take a word of the call."""
        self._lines.append((_LOAD, offset, None, None))

    def jump(self, test: int, value: int, then: str | None = None, otherwise: str | None = None) -> None:
        """To `then` when the test holds, else to `otherwise`; None goes on."""
        self._lines.append((test, value, then, otherwise))

    def end(self, action: int) -> None:
        """The verdict."""
        self._lines.append((_RETURN, action, None, None))

    def place(self, name: str) -> None:
        """What jumps lead to under this name begins here."""
        self._places[name] = len(self._lines)

    def assembled(self) -> bytes:
        """As the kernel takes it."""
        code = b""
        for line, (operation, value, then, otherwise) in enumerate(self._lines):
            ahead = [0 if name is None else self._places[name] - line - 1 for name in (then, otherwise)]
            code += struct.pack("=HBBI", operation, *ahead, value)
        return code


@cache
def program(machine: str, *, confined: bool, route_only: bool, no_network: bool) -> bytes:
    """The filter for a machine (by uname(2)'s name). Raises OSError when there is none. Pure.

    `confined`: with the whole list, otherwise with what would be a way round `route_only`.
    """
    known = _MACHINES.get(machine)
    if known is None:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    code = _Code()
    code.load(_ARCHITECTURE)
    code.jump(_JUMP_EQUAL, known.audit, None, "kill")
    code.load(_NUMBER)
    code.jump(_JUMP_AT_LEAST, _X32_BIT, "kill")
    if confined:
        code.jump(_JUMP_EQUAL, known.clone, "clone")
        code.jump(_JUMP_EQUAL, known.clone3, "absent")
    if route_only or no_network:
        code.jump(_JUMP_EQUAL, known.socket, "route" if route_only else "socket")
    for name, numbers in _REFUSED.items():
        number = numbers[known.column]
        if number is not None and (confined or name in _WAYS_ROUND):
            code.jump(_JUMP_EQUAL, number, "refuse")
    if confined:
        for numbers in _OF_ITSELF.values():
            code.jump(_JUMP_EQUAL, numbers[known.column], "itself")
        for name, (numbers, _) in _OF_ITSELF_OR_GROUP.items():
            code.jump(_JUMP_EQUAL, numbers[known.column], name)
    code.end(_ALLOW)
    _place_judgements(code)
    return code.assembled()


def _place_judgements(code: _Code) -> None:
    """Where the jumps lead: what depends on arguments, and the verdicts."""
    for name, (_, user) in _OF_ITSELF_OR_GROUP.items():
        code.place(name)
        code.load(_FIRST_ARGUMENT)
        code.jump(_JUMP_AT_LEAST, user, "refuse")
        code.load(_SECOND_ARGUMENT)
        code.jump(_JUMP_EQUAL, 0, None, "refuse")
        code.end(_ALLOW)
    code.place("itself")
    code.load(_FIRST_ARGUMENT)
    code.jump(_JUMP_EQUAL, 0, None, "refuse")
    code.end(_ALLOW)
    code.place("clone")
    code.load(_FIRST_ARGUMENT)
    code.jump(_JUMP_SET, _CLONE_NEW, "refuse")
    code.end(_ALLOW)
    code.place("socket")
    code.load(_FIRST_ARGUMENT)
    for family in _BOUNDED_FAMILIES:
        code.jump(_JUMP_EQUAL, family, "allow")
    code.jump(_JUMP_AT_LEAST, 0, "no family")
    code.place("route")
    code.load(_FIRST_ARGUMENT)
    code.jump(_JUMP_EQUAL, _AF_NETLINK, None, "no family")
    code.load(_THIRD_ARGUMENT)
    code.jump(_JUMP_EQUAL, _NETLINK_ROUTE, None, "no family")
    code.end(_ALLOW)
    code.place("allow")
    code.end(_ALLOW)
    for name, number in (("refuse", errno.EPERM), ("absent", errno.ENOSYS), ("no family", errno.EAFNOSUPPORT)):
        code.place(name)
        code.end(_ERRNO | number)
    code.place("kill")
    code.end(_KILL)


def install(*, confined: bool, route_only: bool, no_network: bool) -> None:
    """Filter this process and all that it starts. Needs no_new_privs. Raises OSError."""
    code = program(os.uname().machine, confined=confined, route_only=route_only, no_network=no_network)
    given = _Program(len(code) // 8, code)
    arguments = (ctypes.c_ulong(_MODE_FILTER), ctypes.byref(given), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if _LIBC.prctl(ctypes.c_int(_PR_SET_SECCOMP), *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
