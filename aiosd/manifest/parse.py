"""From the text of a manifest to a `Capability`, or to the reasons why not.

Every finding is collected, so an author sees all of them at once, each with its line. An unknown key is a warning and
is ignored (a newer manifest on an older daemon still loads); a wrong value refuses the file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar, cast

from aiosd.manifest import keys
from aiosd.manifest.levels import LIMIT_KEYS, Wish, too_loose
from aiosd.manifest.lines import key_lines, line_of
from aiosd.manifest.problem import Problem, Severity
from aiosd.manifest.rules import consistency, placeholder_problems
from aiosd.model.jsontext import JsonObject
from aiosd.model.later import dataclass
from aiosd.model.manifest import (
    LEVEL_DEFAULTS,
    Capability,
    Identity,
    Limits,
    OnFailure,
    Pausable,
    Protocol,
    Recovery,
    RetryPolicy,
)
from aiosd.model.status import Level

if TYPE_CHECKING:
    from aiosd.manifest.keys import Key

MAX_BYTES = 64 * 1024
"""Largest manifest, in bytes."""

NO_ARGUMENTS: JsonObject = {"type": "object", "additionalProperties": False}
SUFFIX = ".toml"
_TOML_PLACE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)

T = TypeVar("T")
Path = tuple[str, ...]
SchemaCheck = Callable[[JsonObject], Iterable[tuple[Path, str]]]
"""Given a schema, what is wrong with it: a path inside it, and a sentence."""


@dataclass(frozen=True, slots=True)
class ParsedManifest:
    """What became of one file: the capability, or None when there is an error among the problems."""

    capability: Capability | None
    problems: tuple[Problem, ...]


class _Refused(Exception):
    """The rest cannot be looked at; the problems say why."""


class _Reader:
    """One manifest being read: the raw document, what was found wrong, and where."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.problems: list[Problem] = []
        self.document: Mapping[str, object] = {}

    @cached_property
    def lines(self) -> dict[Path, int]:
        return key_lines(self.text)

    def say(self, path: Path, message: str, severity: Severity = Severity.ERROR) -> None:
        self.problems.append(Problem(self.source, line_of(self.lines, path), ".".join(path), severity, message))

    def load(self) -> None:
        """Raises _Refused when the text is not TOML."""
        try:
            self.document = tomllib.loads(self.text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            found = _TOML_PLACE.fullmatch(str(error))
            message = found[1] if found else "nested too deeply" if isinstance(error, RecursionError) else str(error)
            line = int(found[2]) if found else None
            self.problems.append(Problem(self.source, line, "", Severity.ERROR, f"not TOML: {message}"))
            raise _Refused from None

    def get(self, key: Key[T]) -> T | None:
        """The parsed value; None when it is absent, or wrong and said so."""
        value: object = self.document
        for part in key.path:
            if not isinstance(value, Mapping) or part not in value:
                if key.required:
                    self.say(key.path, "is missing")
                return None
            value = value[part]
        try:
            return key.parse(value)
        except ValueError as error:
            self.say(key.path, str(error))
        except RecursionError:
            self.say(key.path, "nested too deeply")
        return None

    def need(self, key: Key[T]) -> T:
        """As `get`, where the key is required. A missing value is already a problem, so the result is never used."""
        return cast("T", self.get(key))

    def unknown(self) -> None:
        known = {key.path for key in keys.KEYS}
        for name, value in self.document.items():
            if name in keys.SECTIONS:
                if not isinstance(value, Mapping):
                    self.say((name,), "must be a table")
                    continue
                for inner in value:
                    if (name, inner) not in known:
                        self.say((name, _short(inner)), "unknown key, ignored", Severity.WARNING)
            elif (name,) not in known:
                self.say((_short(name),), "unknown key, ignored", Severity.WARNING)

    @property
    def failed(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.problems)


def parse_manifest(text: bytes, source: str, *, check_schema: SchemaCheck | None = None) -> ParsedManifest:
    """Read one manifest.

    `source` is the path it came from; its last part must be the id and `.toml`. `check_schema` looks at [input] and
    [result] (`schema.check_for_manifest`); without it they are only required to be tables, which is enough for the
    launcher and keeps the JSON Schema library out of it. Never raises for what is in `text`.
    """
    reader = _Reader("", source)
    try:
        reader.text = _decode(text)
        reader.load()
        reader.unknown()
        capability = _capability(reader)
        if not reader.failed:
            _judge(reader, capability, check_schema)
    except _Refused:
        return ParsedManifest(None, tuple(reader.problems))
    except ValueError as error:
        reader.say((), str(error))
        return ParsedManifest(None, tuple(reader.problems))
    return ParsedManifest(None if reader.failed else capability, tuple(reader.problems))


def _decode(text: bytes) -> str:
    if len(text) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None


def _capability(reader: _Reader) -> Capability:
    """Everything read and defaults filled in; fields whose keys were wrong hold what must not be used."""
    level = reader.need(keys.LEVEL)
    row = LEVEL_DEFAULTS[level or Level.PUBLIC]
    identity, user = reader.get(keys.USER) or (row.identity, None)
    cancelable = reader.get(keys.CANCELABLE)
    return Capability(
        id=reader.need(keys.ID),
        title=reader.need(keys.TITLE),
        description=reader.need(keys.DESCRIPTION),
        level=level,
        exec=reader.need(keys.EXEC),
        identity=identity,
        user=user,
        network=reader.get(keys.NETWORK) or row.network,
        home=reader.get(keys.HOME) or row.home,
        read_write_paths=reader.get(keys.READ_WRITE_PATHS) or (),
        limits=_limits(reader, row.limits),
        input_schema=reader.get(keys.INPUT) or NO_ARGUMENTS,
        result_schema=reader.get(keys.RESULT),
        concurrency=reader.get(keys.CONCURRENCY),
        pausable=reader.get(keys.PAUSABLE) or Pausable.FREEZE,
        cancelable=True if cancelable is None else cancelable,
        cancel_grace_ms=reader.get(keys.CANCEL_GRACE) or 5000,
        recovery=reader.get(keys.RECOVERY) or Recovery.FAIL,
        idempotent=reader.get(keys.IDEMPOTENT) or False,
        timeout_ms=reader.get(keys.TIMEOUT),
        retry=RetryPolicy(reader.get(keys.MAX_ATTEMPTS) or 1, reader.get(keys.RETRY_DELAY) or 1000),
        on_failure=reader.get(keys.ON_FAILURE) or OnFailure.FAIL,
        estimated_duration_ms=reader.get(keys.ESTIMATED_DURATION),
        source=reader.source,
        protocol=reader.get(keys.PROTOCOL) or Protocol.PLAIN,
    )


def _limits(reader: _Reader, defaults: Limits) -> Limits:
    limits = defaults
    for field, key in LIMIT_KEYS.items():
        value = reader.get(key)
        if value is not None:
            limits = replace(limits, **{field: value})
    return limits


def _judge(reader: _Reader, capability: Capability, check_schema: SchemaCheck | None) -> None:
    """The rules that look at more than one key."""
    expected = capability.id + SUFFIX
    if PurePath(reader.source).name != expected:
        reader.say(keys.ID.path, f"the file must be called {expected}")
    if capability.identity is Identity.NAMED and capability.user is None:
        reader.say(keys.USER.path, "is missing: level critical has no default")
    wish = Wish(
        capability.level,
        capability.identity,
        capability.network,
        capability.home,
        capability.read_write_paths,
        capability.limits,
    )
    for key, message in too_loose(wish):
        reader.say(key.path, message)
    for path, message, severity in (*consistency(capability), *placeholder_problems(capability)):
        reader.say(path, message, severity)
    if check_schema is not None:
        _check_schemas(reader, capability, check_schema)


def _check_schemas(reader: _Reader, capability: Capability, check_schema: SchemaCheck) -> None:
    for name, schema in (("input", capability.input_schema), ("result", capability.result_schema)):
        for path, message in () if schema is None else check_schema(schema):
            reader.say((name, *path), message)


def _short(name: str) -> str:
    """A key that a stranger chose, fit for a message."""
    return "".join(char if char.isprintable() else "?" for char in name[:64])
