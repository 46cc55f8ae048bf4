"""Copying the files that a program hands over as artifacts into the run's `blobs`.

Standard library only. It runs with the task's identity and inside its mount namespace, so it can read no more than the
program itself could; what is left to guard against are files that block, that change, or that fill the disk.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from aiosd.run import syscalls

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

_STEP = 1024 * 1024
_FILE_KINDS = frozenset({"file", "image", "audio", "video"})
_PARTS_MAX = 64


class ArtifactError(ValueError):
    """The artifact cannot be taken; `str()` says why."""


class BlobFile:
    """The run's `blobs`: contents one after the other."""

    def __init__(self, fd: int, scratch: int, limit: int) -> None:
        """`fd`: opened for appending. `scratch`: the directory that relative paths start from. `limit`: in bytes."""
        self.fd = fd
        self._scratch = scratch
        self._limit = limit
        self._size = 0
        self._proc = os.stat("/proc").st_dev  # where /proc/self would be the shim, not the program

    def take(self, payload: JsonObject) -> Generator[None, None, JsonObject]:
        """Copy the file parts of an artifact chunk; returns its payload with `blob` in their place.

        Yields after each mebibyte, so that the caller can do other things meanwhile. Raises ArtifactError.
        """
        parts = payload.get("parts", [])
        if not isinstance(parts, list) or len(parts) > _PARTS_MAX:
            raise ArtifactError(f"parts: must be a list of at most {_PARTS_MAX}")
        taken: list[JsonValue] = []
        for part in parts:
            if not isinstance(part, Mapping):
                raise ArtifactError("parts: each must be an object")
            taken.append((yield from self._part(part)))
        return {**payload, "parts": taken}

    def _part(self, part: JsonObject) -> Generator[None, None, JsonObject]:
        result: dict[str, JsonValue] = {key: value for key, value in part.items() if key not in ("blob", "name")}
        for kind in sorted(_FILE_KINDS & part.keys()):
            described = part[kind]
            path = described.get("path") if isinstance(described, Mapping) else None
            if not isinstance(described, Mapping) or not isinstance(path, str) or not path:
                raise ArtifactError(f"{kind}: must be an object with a path")
            blob = yield from self._copy(path)
            kept = {key: value for key, value in described.items() if key not in ("path", "blob", "name")}
            result[kind] = {**kept, "name": path.rpartition("/")[2], "blob": blob}
        return result

    def _open(self, path: str) -> int:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        try:
            if path.startswith("/"):
                return syscalls.open_strictly(path, flags, syscalls.RESOLVE_NO_MAGICLINKS)
            resolve = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_MAGICLINKS
            return syscalls.open_strictly(path, flags, resolve, self._scratch)
        except OSError as error:
            raise ArtifactError(f"the file cannot be opened: {os.strerror(error.errno or 0)}") from None

    def _copy(self, path: str) -> Generator[None, None, JsonObject]:
        source = self._open(path)
        offset = self._size
        digest = hashlib.sha256()
        try:
            self._check(os.fstat(source))
            while data := os.read(source, _STEP):
                if self._size + len(data) > self._limit:
                    raise self._too_large()
                digest.update(data)
                self._append(data)
                yield
        except (ArtifactError, OSError) as error:
            os.ftruncate(self.fd, offset)
            self._size = offset
            raise ArtifactError(str(error)) from None
        finally:
            os.close(source)
        return {"offset": offset, "size": self._size - offset, "sha256": digest.hexdigest()}

    def _check(self, info: os.stat_result) -> None:
        """Raise ArtifactError for what must not be copied, before any of it is: whoever asks for it may ask often."""
        if not stat.S_ISREG(info.st_mode) or info.st_dev == self._proc:
            raise ArtifactError("not a regular file")
        if self._size + info.st_size > self._limit:
            raise self._too_large()

    def _too_large(self) -> ArtifactError:
        return ArtifactError(f"the artifacts of this run are larger than {self._limit} bytes")

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            done = os.write(self.fd, view)
            self._size += done
            view = view[done:]
