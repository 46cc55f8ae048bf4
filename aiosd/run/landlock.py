"""A domain around a task below level critical: nobody outside can be traced, looked into or signalled (landlock(7)).

Standard library only. Landlock bounds tracing (and with it /proc/PID/root, environ, mem) since Linux 5.13, signals and
abstract Unix sockets since 6.12. Files are the mount namespace's matter, so the only file right that is taken is one
that no task has anyway: making device nodes. Tasks share their uid with everything else that the caller runs, which is
why this matters: without it a task could work through any other process of its caller.
"""

from __future__ import annotations

import ctypes
import os
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)

# Linux's unified table; linux/landlock.h
_CREATE_RULESET = 444
_RESTRICT_SELF = 446
_ASK_VERSION = 1
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_SCOPES_SINCE = 6


def version() -> int:
    """The kernel's version of the interface; 0 when there is none, or it is switched off."""
    found = int(_LIBC.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION)))
    return max(found, 0)


def missing() -> str:
    """What this kernel cannot do, in words for the administrator; "" when it can do all of it."""
    known = version()
    if known == 0:
        return "tasks of a user can look into, change and end that user's other processes"
    return "" if known >= _SCOPES_SINCE else "tasks of a user can end that user's other processes"


def confine() -> None:
    """Enter a new domain, with all that this process starts. Needs no_new_privs. Raises OSError.

    Does what the kernel can: nothing at all where it has no Landlock.
    """
    known = version()
    if known == 0:
        return
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if known >= _SCOPES_SINCE else 0
    # struct landlock_ruleset_attr: file rights, network rights, scopes; an older kernel knows the first only
    attributes = struct.pack("=QQQ", _MAKE_CHAR | _MAKE_BLOCK, 0, scoped)
    size = 24 if known >= _SCOPES_SINCE else 8
    fd = _LIBC.syscall(
        ctypes.c_long(_CREATE_RULESET), attributes, ctypes.c_size_t(size), ctypes.c_uint(0)
    )  # fmt: skip
    _check(fd, "landlock_create_ruleset")
    try:
        _check(
            _LIBC.syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(fd), ctypes.c_uint(0)), "landlock_restrict_self"
        )
    finally:
        os.close(fd)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
