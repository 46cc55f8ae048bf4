"""Grants: what a person has consented to ahead of the next use. Pure: whether a grant covers a request, and how long.

A grant stands for a *person's answer*, never for polkit's policy: it is looked at only where polkit says that somebody
has to be asked. It is never made for levels high and critical (design: permissions).
"""

from __future__ import annotations

import re
from dataclasses import field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from aiosd.model import jsontext
from aiosd.model.grant import Grant, Scope
from aiosd.model.later import dataclass
from aiosd.model.status import Level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.model.jsontext import JsonObject, JsonValue

MICROSECONDS = 1_000_000
HIGHEST = Level.MEDIUM
"""The highest level for which a grant can exist."""
MAX_SECONDS = 366 * 24 * 3600
_TIMED = re.compile(r"timed:([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Term:
    """A scope as people write it; `seconds` for `timed:<seconds>` only."""

    scope: Scope
    seconds: int = 0

    def __str__(self) -> str:
        """`timed:300`, `persistent`."""
        return f"{self.scope}:{self.seconds}" if self.scope is Scope.TIMED else self.scope.value

    def expires_at(self, now: int) -> int | None:
        """Microseconds since the epoch, None for never."""
        return now + self.seconds * MICROSECONDS if self.scope is Scope.TIMED else None


def parse_term(text: str) -> Term:
    """The term that `text` says. Raises ValueError with a sentence."""
    found = _TIMED.fullmatch(text)
    if found is not None:
        seconds = int(found[1])
        if seconds > MAX_SECONDS:
            raise ValueError("longer than a year")
        return Term(Scope.TIMED, seconds)
    if text in (Scope.ONCE, Scope.TASK, Scope.SESSION, Scope.PERSISTENT):
        return Term(Scope(text))
    raise ValueError("must be once, task, session, timed:<seconds> or persistent")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request, as far as a grant can ask. `tasks`: its parent and the task it retries."""

    uid: int
    capability_id: str
    level: Level
    arguments: JsonObject = field(default_factory=dict)
    session_id: str | None = None
    tasks: tuple[str, ...] = ()


def covers(grant: Grant, wanted: Wanted, now: int) -> bool:
    """Whether this request needs no other consent of its person."""
    return (
        grant.is_valid(now)
        and grant.uid == wanted.uid
        and wanted.level <= min(grant.level, HIGHEST)
        and fnmatchcase(wanted.capability_id, grant.capability)
        and (grant.scope is not Scope.SESSION or grant.session_id in _some(wanted.session_id))
        and (grant.scope is not Scope.TASK or grant.task_id in wanted.tasks)
        and fits(grant.constraints, wanted.arguments)
    )


def _some(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)


def check_constraints(constraints: JsonObject) -> None:
    """Raise ValueError when they are not of the form that `fits` reads."""
    for name, one in constraints.items():
        if not isinstance(one, dict) or len(one) != 1 or not {"equals", "glob"} >= set(one):
            raise ValueError(f'{name}: must be {{"equals": value}} or {{"glob": "text"}}')
        if "glob" in one and (not isinstance(one["glob"], str) or len(one["glob"]) > 1024):
            raise ValueError(f"{name}: a glob is a text of at most 1024 characters")


def fits(constraints: JsonObject, arguments: JsonObject) -> bool:
    """Whether arguments are within constraints: each names an argument and says `equals` (the JSON value) or `glob`.

    A constrained argument has to be there: what a program does without it is not what was consented to. A `*` matches
    no "..", so a path below a folder cannot climb out of it.
    """
    return all(name in arguments and _allows(one, arguments[name]) for name, one in constraints.items())


def _allows(constraint: JsonValue, value: JsonValue) -> bool:
    if not isinstance(constraint, dict) or len(constraint) != 1:
        return False
    if "equals" in constraint:
        return _same(constraint["equals"], value)
    pattern = constraint.get("glob")
    if not isinstance(pattern, str) or not isinstance(value, str) or ".." in value.split("/"):
        return False
    return fnmatchcase(value, pattern)


def _same(one: JsonValue, other: JsonValue) -> bool:
    """Equal as JSON: 1 is not true."""
    return jsontext.canonical({"value": one}) == jsontext.canonical({"value": other})


def best(grants: list[Grant], wanted: Wanted, now: int) -> Grant | None:
    """The grant to use: the narrowest that covers the request, so that a `once` is not kept while a broad one is used.

    Narrow is the order of `Scope`; of equal ones the oldest.
    """
    covering = [grant for grant in grants if covers(grant, wanted, now)]
    return min(covering, key=lambda grant: (_ORDER[grant.scope], grant.created_at, grant.id), default=None)


_ORDER: Mapping[Scope, int] = {scope: number for number, scope in enumerate(Scope)}
