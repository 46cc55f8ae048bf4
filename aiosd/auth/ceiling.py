"""The administrator's policy files: a ceiling over everything that polkit or a person would allow.

`/etc/aios/permission-policy.toml` holds for everybody, root included (what runs as root asks here as a program);
`/etc/aios/permission-policy.d/<user name or uid>.toml` can only tighten it for one user. Both are root's. A user's own
file in their home is not read: the daemon sees no home, and what a program of the user could write would bind nobody.

A file fails closed. A value that cannot be read counts as the strictest of its key, because nobody knows what it was to
forbid; a file that cannot be read at all, or a key that is not known (a misspelled `always_deny` must not be silently
nothing), leaves level public only.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.manifest.lines import key_lines, line_of
from aiosd.manifest.problem import Problem, Severity
from aiosd.model.later import dataclass
from aiosd.model.status import Level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAIN = Path("/etc/aios/permission-policy.toml")
USERS = Path("/etc/aios/permission-policy.d")
SUFFIX = ".toml"
MAX_BYTES = 64 * 1024
MAX_GLOBS = 1000
MAX_USERS = 10_000
_GLOB = re.compile(r"[a-z0-9_.*?]{1,128}")
_TOML_PLACE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Policy:
    """What one file says; the defaults are those of a file that is not there: no ceiling, nothing granted."""

    max_level: Level = Level.CRITICAL
    always_deny: tuple[str, ...] = ()
    auto_grant: tuple[str, ...] | None = None
    """None: the file says nothing about it, which is not the same as granting nothing in a user's file."""
    require_audit: tuple[str, ...] = ()
    root_command_without_approval: bool = False
    source: str = ""

    def denies(self, capability_id: str) -> str | None:
        """The glob of `always_deny` that names the capability."""
        return _first(self.always_deny, capability_id)

    def grants(self, capability_id: str) -> str | None:
        """The glob of `auto_grant` that names the capability."""
        return _first(self.auto_grant or (), capability_id)

    def audits(self, capability_id: str) -> bool:
        """Whether each use is recorded whatever its level."""
        return _first(self.require_audit, capability_id) is not None


STRICTEST = Policy(max_level=Level.PUBLIC, auto_grant=(), require_audit=("*",))
"""In force for a file of which nothing can be believed."""


def tighten(general: Policy, own: Policy | None) -> Policy:
    """The policy of one user: the stricter of both in every point."""
    if own is None:
        return general
    return Policy(
        max_level=min(general.max_level, own.max_level),
        always_deny=general.always_deny + own.always_deny,
        auto_grant=_both(general.auto_grant, own.auto_grant),
        require_audit=general.require_audit + own.require_audit,
        root_command_without_approval=general.root_command_without_approval,
        source=own.source,
    )


AND = " & "
"""Joins two globs that must both match."""


def _both(general: tuple[str, ...] | None, own: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """A user's file narrows what the general one grants, and grants nothing by itself."""
    if own is None:
        return general
    return tuple(f"{one}{AND}{other}" for one in general or () for other in own)


def _first(globs: tuple[str, ...], capability_id: str) -> str | None:
    for glob in globs:
        if all(fnmatchcase(capability_id, part) for part in glob.split(AND)):
            return glob
    return None


@dataclass(frozen=True, slots=True)
class Policies:
    """All files as they were read. `users` by the file's name without suffix: a user's name or uid."""

    general: Policy = field(default_factory=Policy)
    users: Mapping[str, Policy] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def of(self, uid: int, name: str | None) -> Policy:
        """The policy for a user; both a file by name and one by uid count."""
        result = self.general
        for key in dict.fromkeys((str(uid), name)):
            if key is not None and key in self.users:
                result = tighten(result, self.users[key])
        return result


def load(main: Path = MAIN, users: Path = USERS, *, owner: int = 0) -> Policies:
    """Read all files. Blocks on the disk; never raises for what is in them. `owner`: root, other than in tests."""
    problems: list[Problem] = []
    general = read(main, owner, problems, personal=False) or Policy()
    found: dict[str, Policy] = {}
    try:
        if not is_roots_own(users, owner):
            problems.append(_error(users, "may be written by others than root: its files count as the strictest"))
            general = tighten(general, STRICTEST)
        listed = names(users)
    except FileNotFoundError:
        listed = []
    except OSError as error:
        problems.append(_error(users, f"cannot be read: {error.strerror}"))
        return Policies(STRICTEST, {}, tuple(problems))
    for name in listed:
        policy = read(users / f"{name}{SUFFIX}", owner, problems, personal=True)
        if policy is not None:
            found[name] = policy
    return Policies(general, found, tuple(problems))


def is_roots_own(users: Path, owner: int) -> bool:
    """Whether nobody but `owner` can put files into the directory. Raises OSError."""
    info = users.stat()
    return not stat.S_IMODE(info.st_mode) & 0o022 and info.st_uid == owner


def names(users: Path) -> list[str]:
    """Whose files are there: names or uids. Raises OSError."""
    files = sorted(file.name for file in users.iterdir() if file.name.endswith(SUFFIX))
    return [file.removesuffix(SUFFIX) for file in files[:MAX_USERS]]


def _error(file: Path, message: str, line: int | None = None, key: str = "") -> Problem:
    return Problem(os.fsencode(file).decode("utf-8", "replace"), line, key, Severity.ERROR, message)


def read(file: Path, owner: int, problems: list[Problem], *, personal: bool) -> Policy | None:
    """One file; None when there is none. `personal`: it is one user's."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(_error(file, f"cannot be read: {error.strerror}; only level public is allowed"))
        return STRICTEST
    with os.fdopen(descriptor, "rb") as stream:
        info = os.fstat(stream.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_uid != owner or info.st_mode & 0o022:
            problems.append(
                _error(file, "is not a regular file that only root can write; only level public is allowed")
            )
            return STRICTEST
        text = stream.read(MAX_BYTES + 1)
    policy, found = parse(text, str(file), personal=personal)
    problems.extend(found)
    return policy


def parse(raw: bytes, source: str, *, personal: bool = False) -> tuple[Policy, tuple[Problem, ...]]:
    """What a file says, and what is wrong with it. `personal`: it is one user's. Pure."""
    problems: list[Problem] = []

    def say(key: str, message: str, line: int | None = None) -> None:
        problems.append(Problem(source, line, key, Severity.ERROR, message))

    try:
        if len(raw) > MAX_BYTES:
            raise ValueError(f"longer than {MAX_BYTES} bytes")
        text = raw.decode("utf-8")
        document = tomllib.loads(text)
    except UnicodeDecodeError:
        say("", "not UTF-8; only level public is allowed")
        return STRICTEST, tuple(problems)
    except (ValueError, RecursionError) as error:
        found = _TOML_PLACE.fullmatch(str(error))
        say("", f"{found[1] if found else error}; only level public is allowed", int(found[2]) if found else None)
        return STRICTEST, tuple(problems)
    lines = key_lines(text)
    values: dict[str, object] = {"source": source}
    believed = True
    for name, value in document.items():
        key = _KEYS.get(name)
        line = line_of(lines, (name,))
        if key is None or (personal and not key.personal):
            what = "unknown key" if key is None else "has no place in a user's file"
            say(name[:64], f"{what}; only level public is allowed", line)
            believed = False
            continue
        try:
            values[key.column] = key.parse(value)
        except ValueError as error:
            say(name, f"{error}; {key.instead}", line)
            values[key.column] = key.strictest
    policy = Policy(**values)  # type: ignore[arg-type]  # the keys' parsers made them
    return policy if believed else tighten(policy, STRICTEST), tuple(problems)


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of the file: the field that it fills, how, and what counts when its value is wrong (and that in words)."""

    column: str
    parse: Callable[[object], object]
    strictest: object
    instead: str
    personal: bool = True


def _level(value: object) -> Level:
    names = [level.wire for level in Level]
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"must be one of {', '.join(names)}")
    return Level.from_name(value)


def _globs(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_GLOBS:
        raise ValueError(f"must be an array of at most {MAX_GLOBS} capability ids or globs")
    for number, glob in enumerate(value, start=1):
        if not isinstance(glob, str) or _GLOB.fullmatch(glob) is None:
            raise ValueError(f'element {number} must be a capability id or a glob of one, as "system.*"')
    return tuple(value)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


_KEYS: Mapping[str, _Key] = {
    "max_permission_level": _Key("max_level", _level, Level.PUBLIC, "only level public is allowed"),
    "always_deny": _Key("always_deny", _globs, ("*",), "everything is denied"),
    "auto_grant": _Key("auto_grant", _globs, (), "nothing is granted"),
    "require_audit": _Key("require_audit", _globs, ("*",), "everything is audited"),
    "root_command_without_approval": _Key(
        "root_command_without_approval", _switch, strictest=False, instead="an approval is needed", personal=False
    ),
}

NAMES = frozenset(_KEYS)
"""Of the keys."""
