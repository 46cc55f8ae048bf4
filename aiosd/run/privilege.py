"""What a shim has of root's rights, and until when.

Standard library only. A shim has the rights of its task and no more, with two exceptions. Until its program is there
it may take itself out of the way when memory runs out (CAP_SYS_RESOURCE): done before, the program would inherit it.
And at level critical root keeps its capabilities, and what the shim has not it cannot hand on (capabilities(7),
execve with no_new_privs); so it holds them until the program is there, without using them, and afterwards the right
to signal, since such a program may start processes as anybody.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from aiosd.run import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.run.syscalls import Account

SHIM_UID = 1_879_113_727
"""The real user of every shim: a number that belongs to nobody and has no rights (beside `identity.DYNAMIC_FIRST`)."""

_SPARED = b"-900"
"""When memory runs out the program must go, not the one who reports it (proc(5), oom_score_adj)."""

_KILL = 1 << syscalls.CAP_KILL
_RESOURCE = 1 << syscalls.CAP_SYS_RESOURCE


class Privilege:
    """Made as root; then `drop`, and `settle` once the program runs."""

    def __init__(self, account: Account, *, keep_capabilities: bool) -> None:
        """`account`: the task's. `keep_capabilities`: whether its program is to have what this process has."""
        self._account = account
        self._keep = keep_capabilities
        self._held = syscalls.permitted_capabilities()
        self._kept = self._held & _KILL if keep_capabilities else 0
        self._score: int | None = None
        with suppress(OSError):
            self._score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)

    def drop(self) -> None:
        """Become the task's for good; nobody of its user can signal or trace this process. Raises OSError."""
        if not self._keep:
            syscalls.empty_bounding_set()
        syscalls.keep_capabilities_once()
        syscalls.watch_as(self._account, SHIM_UID)
        syscalls.set_capabilities(self._held if self._keep else self._held & _RESOURCE, effective=self._kept)
        syscalls.set_no_new_privileges()
        syscalls.set_undumpable()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Be the task's user in full, for as long as it takes to start a program as that user.

        Takes no privilege: setresuid(2) may take the effective user as the real one, and the saved one back. Meanwhile
        this process can be signalled by its user, as the program can be from then on; it cannot be traced, because
        its memory stays undumpable.
        """
        os.setresuid(self._account.uid, -1, -1)
        try:
            yield
        finally:
            os.setresuid(SHIM_UID, -1, -1)

    def settle(self) -> None:
        """The program is there: spare this process, and let go of all that is left. Raises OSError."""
        with suppress(OSError):
            spare = self._kept | self._held & _RESOURCE
            syscalls.set_capabilities(spare, effective=spare)
            if self._score is not None:
                os.write(self._score, _SPARED)
        if self._score is not None:
            os.close(self._score)
            self._score = None
        syscalls.set_capabilities(self._kept, effective=self._kept)
