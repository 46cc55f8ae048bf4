"""The filter behind `network = "netlink"`: the host's network can be looked at, and nobody can be reached (seccomp(2)).

Standard library only. Of all sockets only NETLINK_ROUTE ones can be made; socket pairs are another system call and stay
possible. What would be a way around is refused too: the other system call tables of the machine, io_uring (it can make
sockets of its own) and taking descriptors out of other processes. On a machine that is not in the table nothing runs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from dataclasses import dataclass

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_SECCOMP = 22
_MODE_FILTER = 2

_IO_URING_SETUP = 425
_PIDFD_GETFD = 438
_X32_BIT = 0x40000000
_AF_NETLINK = 16
_NETLINK_ROUTE = 0

# linux/bpf_common.h, linux/filter.h: load a word; jump when equal, when at least; return
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
# linux/seccomp.h: offsets in struct seccomp_data, little-endian low halves of the arguments; what to do
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 32
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


@dataclass(frozen=True, slots=True)
class _Machine:
    """linux/audit.h's name of the system call table, and the number of socket(2) in it."""

    audit: int
    socket: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 41),
    "aarch64": _Machine(0xC00000B7, 198),
    "riscv64": _Machine(0xC00000F3, 198),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _program(machine: _Machine) -> bytes:
    """The instructions; the last three are where the jumps lead, counted from the next instruction."""
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 0, 10, machine.audit),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 8, 0, _X32_BIT),
        (_JUMP_EQUAL, 7, 0, _IO_URING_SETUP),
        (_JUMP_EQUAL, 6, 0, _PIDFD_GETFD),
        (_JUMP_EQUAL, 0, 6, machine.socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_EQUAL, 0, 2, _AF_NETLINK),
        (_LOAD, 0, 0, _THIRD_ARGUMENT),
        (_JUMP_EQUAL, 2, 0, _NETLINK_ROUTE),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def leave_only_route_sockets() -> None:
    """Install the filter, for this process and all that it starts. Needs no_new_privs. Raises OSError."""
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        raise OSError(errno.ENOSYS, f"no filter for the network view on {os.uname().machine}")
    code = _program(machine)
    program = _Program(len(code) // 8, code)
    arguments = (ctypes.c_ulong(_MODE_FILTER), ctypes.byref(program), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if _LIBC.prctl(ctypes.c_int(_PR_SET_SECCOMP), *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
