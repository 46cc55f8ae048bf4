"""Who carries tasks out: a registry by type of capability, changed while the daemon runs (seed 002's contract).

Two are always meant: the scopes of this machine (`LOCAL`, every installed capability), and workers (`WORKERS`, tasks of
plans that name no capability). A type is a capability's id, the beginning of one up to a dot, LOCAL or WORKERS; the
longest that was added counts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from aiosd.core import run_states
from aiosd.errors import AiosError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.core.run_states import Launch
    from aiosd.model.task import Task
    from aiosd.store.database import Transaction

LOCAL = "*"
WORKERS = ""


class Executor(Protocol):
    """Carries tasks out."""

    def start(self, transaction: Transaction, task: Task) -> Callable[[], None] | None:
        """Give an admitted task its next attempt, in the scheduler's transaction. What is answered is called on the
        loop after the commit; None when there is nothing more to do for now."""
        ...


class LocalScopes:
    """The built-in one: a run of the capability's program in a scope of this machine."""

    def __init__(self, boot_id: str, launch: Callable[[Launch], None]) -> None:
        """`launch`: called on the loop, after the commit, with the run that was made."""
        self._boot_id = boot_id
        self._launch = launch

    def start(self, transaction: Transaction, task: Task) -> Callable[[], None]:
        """Make the run's row; what is answered launches it."""
        return partial(self._launch, run_states.assign(transaction, task, self._boot_id))


class Executors:
    """The registry. Used by the loop and, for looking up, by the writer thread: a change replaces the table."""

    def __init__(self) -> None:
        """Nobody yet."""
        self._table: dict[str, Executor] = {}

    def add(self, capability_type: str, executor: Executor) -> None:
        """From now on it carries out tasks of that type. Raises ValueError when somebody does already."""
        if capability_type in self._table:
            raise ValueError(f"there is an executor for {capability_type!r} already")
        self._table = {**self._table, capability_type: executor}

    def remove(self, capability_type: str) -> None:
        """It starts no more; what it has begun it goes on with. Raises EXECUTOR_NOT_FOUND."""
        if capability_type not in self._table:
            raise _missing(capability_type)
        self._table = {name: one for name, one in self._table.items() if name != capability_type}

    def get(self, capability_id: str) -> Executor:
        """Who carries out that capability. Raises EXECUTOR_NOT_FOUND when nobody does."""
        table = self._table
        if capability_id == WORKERS:
            names = [WORKERS]
        else:
            parts = capability_id.split(".")
            names = [*(".".join(parts[:count]) for count in range(len(parts), 0, -1)), LOCAL]
        for name in names:
            if name in table:
                return table[name]
        raise _missing(capability_id)


def _missing(capability_type: str) -> AiosError:
    return AiosError(
        ErrorKind.EXECUTOR_NOT_FOUND, "nobody carries out capabilities of this type", reason="no-executor",
        data={"capability_type": capability_type},
    )  # fmt: skip
