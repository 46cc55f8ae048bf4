"""What a grant covers: never more than its person consented to, and nothing once it has ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.auth.grants import HIGHEST, MAX_SECONDS, Term, Wanted, best, check_constraints, covers, fits, parse_term
from aiosd.model.grant import Grant, Scope
from aiosd.model.status import Level

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject

NOW = 1_767_607_200_000_000
"""2026-01-05T10:00:00Z, seed 000's first example, in microseconds."""
SECOND = 1_000_000

GRANT = Grant("grant-1", 1000, "system.*", Level.LOW, Scope.PERSISTENT, 1000, NOW)
WANTED = Wanted(1000, "system.disk.usage", Level.LOW, {"path": "/usr"})

levels = st.sampled_from(Level)
scopes = st.sampled_from(Scope)


@given(level=levels, granted=levels, scope=scopes)
def test_no_grant_covers_high_and_critical(level: Level, granted: Level, scope: Scope) -> None:
    grant = replace(GRANT, level=granted, scope=scope, session_id="ps-1", task_id="task-1")
    wanted = replace(WANTED, level=level, session_id="ps-1", tasks=("task-1",))
    assert covers(grant, wanted, NOW) == (level <= granted and level <= HIGHEST)


def test_it_is_of_one_user() -> None:
    assert covers(GRANT, WANTED, NOW)
    assert not covers(GRANT, replace(WANTED, uid=1001), NOW)


@pytest.mark.parametrize(
    ("pattern", "capability", "covered"),
    [
        ("system.disk.usage", "system.disk.usage", True),
        ("system.*", "system.disk.usage", True),
        ("system.*", "systemd.disk.usage", False),
        ("system.disk", "system.disk.usage", False),
        ("*.usage", "system.disk.usage", True),
    ],
)
def test_the_capability_is_an_id_or_a_glob(pattern: str, capability: str, *, covered: bool) -> None:
    assert covers(replace(GRANT, capability=pattern), replace(WANTED, capability_id=capability), NOW) is covered


def test_a_session_s_grant_is_for_that_session() -> None:
    grant = replace(GRANT, scope=Scope.SESSION, session_id="ps-1")
    assert covers(grant, replace(WANTED, session_id="ps-1"), NOW)
    assert not covers(grant, replace(WANTED, session_id="ps-2"), NOW)
    assert not covers(grant, WANTED, NOW)
    assert not covers(replace(grant, session_id=None), WANTED, NOW)


def test_a_task_s_grant_is_for_its_retries_and_children() -> None:
    grant = replace(GRANT, scope=Scope.TASK, task_id="task-1")
    assert covers(grant, replace(WANTED, tasks=("task-9", "task-1")), NOW)
    assert not covers(grant, replace(WANTED, tasks=("task-9",)), NOW)
    assert not covers(grant, WANTED, NOW)


@given(after=st.integers(-10, 10), lasts=st.integers(1, MAX_SECONDS))
def test_a_timed_grant_ends_to_the_microsecond(after: int, lasts: int) -> None:
    ends = Term(Scope.TIMED, lasts).expires_at(NOW)
    assert ends == NOW + lasts * SECOND
    assert covers(replace(GRANT, scope=Scope.TIMED, expires_at=ends), WANTED, ends + after) == (after < 0)


@given(scope=scopes)
def test_a_revoked_grant_covers_nothing(scope: Scope) -> None:
    grant = replace(GRANT, scope=scope, session_id="ps-1", task_id="task-1", revoked_at=NOW)
    assert not covers(grant, replace(WANTED, session_id="ps-1", tasks=("task-1",)), NOW)


@given(used=st.integers(0, 3), scope=scopes)
def test_once_is_once(used: int, scope: Scope) -> None:
    grant = replace(GRANT, scope=scope, used_count=used, session_id="ps-1", task_id="task-1")
    wanted = replace(WANTED, session_id="ps-1", tasks=("task-1",))
    assert covers(grant, wanted, NOW) == (scope is not Scope.ONCE or used == 0)


@pytest.mark.parametrize(
    ("constraints", "arguments", "within"),
    [
        ({}, {}, True),
        ({}, {"path": "/etc"}, True),
        ({"path": {"equals": "/usr"}}, {"path": "/usr"}, True),
        ({"path": {"equals": "/usr"}}, {"path": "/usr/"}, False),
        ({"path": {"equals": "/usr"}}, {}, False),
        ({"path": {"equals": "/usr"}}, {"path": "/usr", "depth": 3}, True),
        ({"depth": {"equals": 1}}, {"depth": True}, False),
        ({"depth": {"equals": 1}}, {"depth": 1}, True),
        ({"options": {"equals": {"a": [1, None]}}}, {"options": {"a": [1, None]}}, True),
        ({"path": {"glob": "/usr/*"}}, {"path": "/usr/share"}, True),
        ({"path": {"glob": "/usr/*"}}, {"path": "/etc"}, False),
        ({"path": {"glob": "/usr/*"}}, {"path": "/usr/../etc/shadow"}, False),
        ({"path": {"glob": "*"}}, {"path": ".."}, False),
        ({"path": {"glob": "*"}}, {"path": "a..b"}, True),
        ({"path": {"glob": "*"}}, {"path": 3}, False),
        ({"path": {"glob": "*"}}, {"path": ["/usr"]}, False),
        ({"path": "anything else"}, {"path": "anything else"}, False),
    ],
)
def test_arguments_are_held_to_constraints(constraints: JsonObject, arguments: JsonObject, *, within: bool) -> None:
    assert fits(constraints, arguments) is within


@pytest.mark.parametrize(
    "wrong", [{"a": 1}, {"a": {}}, {"a": {"equals": 1, "glob": "*"}}, {"a": {"like": "x"}}, {"a": {"glob": 3}}]
)
def test_constraints_of_another_form_are_refused(wrong: JsonObject) -> None:
    with pytest.raises(ValueError, match="a: "):
        check_constraints(wrong)
    assert not fits(wrong, {"a": 1})


@pytest.mark.parametrize("text", ["once", "task", "session", "persistent", "timed:1", "timed:31622400"])
def test_terms_are_read_and_shown(text: str) -> None:
    assert str(parse_term(text)) == text


@pytest.mark.parametrize(
    "text", ["", "timed", "timed:", "timed:0", "timed:-1", "timed:1.5", "timed:99999999", "Once", "for ever"]
)
def test_other_terms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|longer"):
        parse_term(text)


def test_the_narrowest_is_used_first() -> None:
    once = replace(GRANT, id="grant-2", scope=Scope.ONCE, created_at=NOW + 5)
    timed = replace(GRANT, id="grant-3", scope=Scope.TIMED, expires_at=NOW + SECOND)
    assert best([GRANT, timed, once], WANTED, NOW) == once
    assert best([GRANT, timed], WANTED, NOW) == timed
    assert best([GRANT, timed], WANTED, NOW + SECOND) == GRANT
    assert best([], WANTED, NOW) is None
