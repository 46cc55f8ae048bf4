"""Where manifests are, and which one counts when several have the same name.

systemd's rules (systemd.unit(5), systemd-system.conf(5)): what the vendor ships in /usr/share, what was made for this
boot in /run, what the administrator says in /etc; the same file name in a later one replaces the earlier one as a
whole, and an empty file or a symbolic link to /dev/null masks it. As with a unit file, an override that is refused
leaves nothing: the vendor's file does not come back because the administrator mistyped a stricter one.

A manifest decides what runs as whom, so only root may have written it. Both the daemon and the root launcher read
through here; without `check_schemas` nothing beyond the standard library is imported.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from aiosd.manifest.parse import MAX_BYTES, SUFFIX, SchemaCheck, parse_manifest
from aiosd.manifest.problem import Problem, Severity
from aiosd.manifest.values import ID_PATTERN, MAX_ID
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aiosd.model.manifest import Capability

DEFAULT = (
    Path("/usr/share/aios/capabilities.d"),
    Path("/run/aios/capabilities.d"),
    Path("/etc/aios/capabilities.d"),
)
"""Weakest first."""

MAX_FILES = 4096
"""Most manifests taken from one directory."""

_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class LoadedCapabilities:
    """What is installed now. `fingerprint` compares equal to `fingerprint()` as long as nothing changed on disk."""

    capabilities: Mapping[str, Capability]
    problems: tuple[Problem, ...]
    fingerprint: str


class _Untrusted(Exception):
    """The file or directory may not decide anything; `str()` says why."""


def load_all(
    directories: tuple[Path, ...] = DEFAULT, *, check_schemas: bool = False, owner: int = 0
) -> LoadedCapabilities:
    """Read every manifest that counts. Blocks on the disk; never raises for what is in the directories.

    `check_schemas`: also hold [input] and [result] against JSON Schema's own schema (imports jsonschema: 130 ms,
    9 MiB).
    `owner`: the user id that must own directories and files, other than in tests root's.
    """
    before = fingerprint(directories)
    problems: list[Problem] = []
    winners: dict[str, Path | None] = {}
    for directory in directories:
        trusted = _is_trusted(directory, owner, problems)
        for name in _names(directory, problems):
            winners[name] = directory / name if trusted else None
    check = _schema_check() if check_schemas else None
    capabilities: dict[str, Capability] = {}
    for name in sorted(winners):
        path = winners[name]
        capability = None if path is None else _load(path, owner, check, problems)
        if capability is not None:
            capabilities[capability.id] = capability
    return LoadedCapabilities(MappingProxyType(capabilities), tuple(problems), before)


def load_one(name: str, directories: tuple[Path, ...] = DEFAULT, *, owner: int = 0) -> Capability | None:
    """The capability with the id `name` as it is on disk at this moment, or None (missing, masked or refused).

    For the launcher, which decides by what the manifest says now and not by what it said at its start. `name` may come
    from a stranger: whatever is not an id finds nothing.
    """
    if len(name) > MAX_ID or ID_PATTERN.fullmatch(name) is None:
        return None
    problems: list[Problem] = []
    for directory in reversed(directories):
        path = directory / (name + SUFFIX)
        if os.path.lexists(path):
            try:
                with _opened(directory, owner, os.O_DIRECTORY):
                    return _load(path, owner, None, problems)
            except (OSError, _Untrusted):
                return None
    return None


Trace: TypeAlias = tuple[tuple[int, ...] | None, ...]


def trace(name: str, directories: tuple[Path, ...] = DEFAULT) -> Trace:
    """What `load_one` of that name depends on: two `lstat` a directory. The same trace, the same answer."""
    if len(name) > MAX_ID or ID_PATTERN.fullmatch(name) is None:
        return ()
    return tuple(_facts(path) for directory in directories for path in (directory, directory / (name + SUFFIX)))


def _facts(path: Path) -> tuple[int, ...] | None:
    try:
        info = path.lstat()
    except OSError:
        return None
    if stat.S_ISDIR(info.st_mode):  # other files come and go in it
        return (info.st_ino, info.st_uid, info.st_mode)
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_uid, info.st_mode)


def fingerprint(directories: tuple[Path, ...] = DEFAULT) -> str:
    """A digest of names, sizes, times, owners and modes: one `lstat` a file, nothing is opened."""
    digest = hashlib.blake2b(digest_size=16)
    for directory in directories:
        digest.update(f"\0{directory}\0".encode("utf-8", "surrogateescape"))
        try:
            with os.scandir(directory) as entries:
                listed = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
        except OSError as error:
            digest.update(f"{error.errno}".encode())
            continue
        for name, info in listed:
            facts = (name, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_uid, info.st_mode)
            digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _schema_check() -> SchemaCheck:
    from aiosd.manifest.schema import check_for_manifest

    return check_for_manifest


def _is_trusted(directory: Path, owner: int, problems: list[Problem]) -> bool:
    """Whether what is in it may be used. When not, its names still hide weaker ones: a chmod unmasks nothing."""
    try:
        with _opened(directory, owner, os.O_DIRECTORY):
            return True
    except FileNotFoundError:
        return False
    except (OSError, _Untrusted) as error:
        problems.append(Problem(str(directory), None, "", Severity.ERROR, _reason(error)))
        return False


def _names(directory: Path, problems: list[Problem]) -> list[str]:
    try:
        entries = [path.name for path in directory.iterdir()]
    except OSError:
        return []
    names = sorted(name for name in entries if name.endswith(SUFFIX) and not name.startswith("."))
    if len(names) > MAX_FILES:
        problems.append(Problem(str(directory), None, "", Severity.ERROR, f"holds more than {MAX_FILES} manifests"))
    return names[:MAX_FILES]


def _load(path: Path, owner: int, check: SchemaCheck | None, problems: list[Problem]) -> Capability | None:
    source = os.fsencode(path).decode("utf-8", "replace")
    try:
        if path.is_symlink() and str(path.readlink()) == os.devnull:
            return None
        with _opened(path, owner, os.O_NOFOLLOW) as descriptor:
            text = _read(descriptor)
    except (OSError, _Untrusted) as error:
        problems.append(Problem(source, None, "", Severity.ERROR, _reason(error)))
        return None
    if not text:
        return None
    parsed = parse_manifest(text, source, check_schema=check)
    problems.extend(parsed.problems)
    return parsed.capability


@contextmanager
def _opened(path: Path, owner: int, flags: int) -> Iterator[int]:
    """A descriptor of something that only `owner` can have written. Raises OSError or _Untrusted."""
    descriptor = os.open(path, _READ_ONLY | flags)
    try:
        info = os.fstat(descriptor)
        if not flags & os.O_DIRECTORY and not stat.S_ISREG(info.st_mode):
            raise _Untrusted("is not a regular file")
        if info.st_uid != owner:
            raise _Untrusted(f"is owned by user id {info.st_uid}, not by {owner}")
        if info.st_mode & _WRITABLE_BY_OTHERS:
            raise _Untrusted("may be written by its group or by everyone")
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> bytes:
    """Up to one byte more than is allowed, so that `parse_manifest` sees a file that is too large as such."""
    text = b""
    while len(text) <= MAX_BYTES:
        piece = os.read(descriptor, MAX_BYTES + 1 - len(text))
        if not piece:
            break
        text += piece
    return text


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        if error.errno == errno.ELOOP:
            return "is a symbolic link: only one to /dev/null is allowed, as a mask"
        return f"cannot be read: {error.strerror or error}"
    return str(error)
