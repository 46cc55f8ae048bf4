"""The system calls that Python 3.11 has no name for, each as one function that raises OSError.

Standard library only: this runs in the fork server and in every shim. The numbers from 424 up are the same on every
architecture (Linux's unified table, `include/uapi/asm-generic/unistd.h`); the others go through the C library.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import socket
import struct
from typing import NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)

_OPEN_TREE = 428
_MOVE_MOUNT = 429
_OPENAT2 = 437
_MOUNT_SETATTR = 442

CLONE_FILES = 0x00000400
CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REC = 16384
MS_PRIVATE = 1 << 18

MOUNT_ATTR_RDONLY = 1
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 4

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
CAP_KILL = 5
CAP_SYS_RESOURCE = 24

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_SIOCOUTQ = 0x5411


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(_LIBC.unshare(flags), "unshare")


def join_namespace(fd: int, kind: int) -> None:
    """setns(2): `fd` is an open /proc/PID/ns/* file, `kind` its CLONE_NEW* flag."""
    _check(_LIBC.setns(fd, kind), "setns")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    done = _LIBC.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(done, f"mount {target}")


def set_mount_read_only(path: str, *, read_only: bool, recursive: bool) -> None:
    """mount_setattr(2) on the mount at `path` (Linux 5.12)."""
    attributes = _MountAttr(
        attr_set=MOUNT_ATTR_RDONLY if read_only else 0, attr_clr=0 if read_only else MOUNT_ATTR_RDONLY
    )
    flags = AT_RECURSIVE if recursive else 0
    done = _LIBC.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(AT_FDCWD),
        path.encode(),
        ctypes.c_uint(flags),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(done, f"mount_setattr {path}")


def clone_tree(path: str) -> int:
    """open_tree(2) with OPEN_TREE_CLONE: a detached copy of the mounts at `path`, as a descriptor."""
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE
    fd = _LIBC.syscall(ctypes.c_long(_OPEN_TREE), ctypes.c_int(AT_FDCWD), path.encode(), ctypes.c_uint(flags))
    return int(_check(fd, f"open_tree {path}"))


def attach_tree(fd: int, target: str) -> None:
    """move_mount(2): put what `clone_tree` gave at `target`."""
    done = _LIBC.syscall(
        ctypes.c_long(_MOVE_MOUNT),
        ctypes.c_int(fd),
        b"",
        ctypes.c_int(AT_FDCWD),
        target.encode(),
        ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH),
    )
    _check(done, f"move_mount {target}")


def open_strictly(path: str, flags: int, resolve: int, directory: int = AT_FDCWD) -> int:
    """openat2(2): open with RESOLVE_* limits on how the path may be followed (Linux 5.6)."""
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=resolve)
    fd = _LIBC.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(directory),
        path.encode(),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    return int(_check(fd, f"open {path}"))


_PRCTL = _LIBC.prctl
_PRCTL.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def _prctl(option: int, first: int, what: str, second: int = 0) -> None:
    _check(_PRCTL(option, first, second, 0, 0), what)


def set_no_new_privileges() -> None:
    """No execve(2) from here on gives more privilege than there is (prctl(2))."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")


def set_undumpable() -> None:
    """No other process of the same user may trace this one or open its descriptors through /proc."""
    _prctl(_PR_SET_DUMPABLE, 0, "set dumpable")


def become_subreaper() -> None:
    """Orphans below this process become its children instead of PID 1's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "set subreaper")


def set_name(name: str) -> None:
    """The name in ps(1): at most 15 bytes."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _prctl(_PR_SET_NAME, ctypes.addressof(buffer), "set name")


@functools.cache
def _arguments() -> tuple[int, int]:
    """Where the command line of this process is in its memory, and of its forks: address, size in bytes.

    `arg_start` and `arg_end` of proc_pid_stat(5); size 0 when the kernel does not tell them.
    """
    try:
        fd = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = os.read(fd, 4096).rpartition(b") ")[2].split()
        finally:
            os.close(fd)
        start, end = int(fields[48 - 3]), int(fields[49 - 3])
    except (OSError, IndexError, ValueError):
        return 0, 0
    return start, max(end - start, 0)


def set_command_line(text: str) -> None:
    """What ps(1) and systemd-cgls(1) show of this process, and its name besides; at most as long as what it had.

    proc_pid_cmdline(5): "Think of this file as the command line that the process wants you to see." So this is written
    over the arguments. A last byte that is not NUL tells the kernel that it ends at the first one (`get_mm_cmdline()`
    in fs/proc/base.c); otherwise the rest of the old length would be shown too. Only the name when the kernel hides
    where they are.
    """
    set_name(text.partition(" ")[0])
    start, size = _arguments()
    if size > 1:
        ctypes.memmove(start, text.encode()[: size - 2].ljust(size - 1, b"\0") + b"\1", size)


def empty_bounding_set() -> None:
    """No program run from here on can have a capability (capabilities(7)); the ambient set goes too."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, "clear ambient capabilities")
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            _prctl(_PR_CAPBSET_DROP, capability, "drop capability")
        except OSError:  # EINVAL: this kernel's capabilities end here
            return


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


_CapSets = _CapData * 2


def permitted_capabilities() -> int:
    """capget(2): the permitted set of this process, capability number as bit number."""
    header, data = _CapHeader(version=_CAPABILITY_VERSION_3, pid=0), _CapSets()
    _check(_LIBC.capget(ctypes.byref(header), ctypes.byref(data)), "capget")
    return int(data[0].permitted | data[1].permitted << 32)


def set_capabilities(permitted: int, *, effective: int) -> None:
    """capset(2), in bits as `permitted_capabilities`; the inheritable set becomes empty."""
    header, data = _CapHeader(version=_CAPABILITY_VERSION_3, pid=0), _CapSets()
    for part, shift in ((data[0], 0), (data[1], 32)):
        part.permitted, part.effective = permitted >> shift & 0xFFFFFFFF, effective >> shift & 0xFFFFFFFF
    _check(_LIBC.capset(ctypes.byref(header), ctypes.byref(data)), "capset")


def keep_capabilities_once() -> None:
    """The next change of all users to other than root leaves the permitted set alone (prctl(2), PR_SET_KEEPCAPS)."""
    _prctl(_PR_SET_KEEPCAPS, 1, "keep capabilities")


class Account(NamedTuple):
    """The numbers that a process runs under (credentials(7))."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def watch_as(account: Account, watcher: int) -> None:
    """Take the account's groups, group and *effective* user, with the real and saved user `watcher`, for good.

    Files are opened and signals sent with the effective user's rights; a signal is taken by the real and saved one
    (kill(2)). So this process can act for the account, and nobody of the account can stop it.
    """
    os.setgroups(account.groups)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(watcher, account.uid, watcher)


def raise_loopback() -> None:
    """Set the loopback interface of this network namespace up (netdevice(7)). In a container that may be forbidden."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        try:
            fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        except PermissionError as error:
            raise OSError(error.errno, f"the loopback interface needs CAP_NET_ADMIN: {error.strerror}") from None


def unread_bytes(sock: socket.socket) -> int:
    """How much of what was sent on this Unix socket its peer has not read yet (unix(7), SIOCOUTQ)."""
    return int(struct.unpack("i", fcntl.ioctl(sock, _SIOCOUTQ, struct.pack("i", 0)))[0])
