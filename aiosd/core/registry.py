"""The installed capabilities as the daemon knows them, read again on demand or when their directories changed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind
from aiosd.manifest import directories

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aiosd.manifest.directories import LoadedCapabilities
    from aiosd.manifest.problem import Problem
    from aiosd.model.manifest import Capability

_log = logging.getLogger(__name__)


class Registry:
    """Capabilities by id."""

    def __init__(self, paths: Sequence[Path] = directories.DEFAULT, *, owner: int = 0) -> None:
        """`paths`: manifest directories, weakest first. Nothing is read before `load`.

        `owner`: the user id that must own them, other than in tests root's.
        """
        self._paths = tuple(paths)
        self._owner = owner
        self._loaded: LoadedCapabilities | None = None

    async def load(self) -> None:
        """Read all manifests; problems are logged once each and kept for `status`."""
        before = set() if self._loaded is None else set(self._loaded.problems)
        self._loaded = await asyncio.to_thread(directories.load_all, self._paths, check_schemas=True)
        for problem in self._loaded.problems:
            if problem not in before:
                _log.warning("%s", problem)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was wrong with manifests when they were last read."""
        return () if self._loaded is None else self._loaded.problems

    def all(self) -> list[Capability]:
        """Every capability, by id."""
        if self._loaded is None:
            return []
        return [self._loaded.capabilities[name] for name in sorted(self._loaded.capabilities)]

    def find(self, capability_id: str) -> Capability | None:
        """The capability of that id, or None."""
        return None if self._loaded is None else self._loaded.capabilities.get(capability_id)

    def require(self, capability_id: str) -> Capability:
        """The capability of that id. Raises CAPABILITY_NOT_FOUND."""
        found = self.find(capability_id)
        if found is None:
            raise AiosError(
                ErrorKind.CAPABILITY_NOT_FOUND, "no such capability is installed", field="capability_id",
                data={"capability_id": capability_id},
            )  # fmt: skip
        return found
