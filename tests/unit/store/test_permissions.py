"""Grants and approvals in the database: what is valid, counted, ended and decided once."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.model.approval import Approval, ApprovalAction, ApprovalStatus
from aiosd.model.grant import Grant, Scope
from aiosd.model.status import Level
from aiosd.store import approvals, grants
from tests.unit.store.rows import NOW
from tests.unit.store.test_schema import database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

GRANT = Grant("grant-1", 1000, "files.*", Level.LOW, Scope.PERSISTENT, 1000, NOW, {"path": {"equals": "/usr"}})
APPROVAL = Approval("apr-1", 1000, "run", "test.critical", "0" * 64, "bus :1.7", NOW, NOW + 10, task_id="task-1")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(database(tmp_path / "tasks.db")) as made:
        yield made


def test_a_grant_comes_back_as_it_was(db: sqlite3.Connection) -> None:
    full = replace(GRANT, scope=Scope.SESSION, session_id="ps-1", task_id="task-1", expires_at=NOW + 5)
    grants.insert(db, full)
    assert grants.get(db, "grant-1") == full
    assert grants.get(db, "grant-2") is None


def test_once_is_used_once(db: sqlite3.Connection) -> None:
    grants.insert(db, replace(GRANT, scope=Scope.ONCE))
    assert grants.use(db, "grant-1", NOW)
    assert not grants.use(db, "grant-1", NOW)
    assert grants.valid_of(db, 1000, NOW) == []
    assert [one.used_count for one in grants.listed(db, 1000, NOW, ended=True)] == [1]


def test_a_timed_grant_ends_by_itself(db: sqlite3.Connection) -> None:
    grants.insert(db, replace(GRANT, scope=Scope.TIMED, expires_at=NOW + 5))
    assert len(grants.valid_of(db, 1000, NOW + 4)) == 1
    assert grants.valid_of(db, 1000, NOW + 5) == []
    assert not grants.use(db, "grant-1", NOW + 5)


def test_a_session_s_grant_ends_with_its_session(db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO sessions(id, uid, created_at, updated_at) VALUES ('ps-1', 1000, ?, ?)", (NOW, NOW))
    grants.insert(db, replace(GRANT, scope=Scope.SESSION, session_id="ps-1"))
    assert len(grants.valid_of(db, 1000, NOW)) == 1
    db.execute("UPDATE sessions SET status = 'closed'")
    assert grants.valid_of(db, 1000, NOW) == []
    assert not grants.use(db, "grant-1", NOW)


def test_revoking_counts_once_and_is_of_one_user(db: sqlite3.Connection) -> None:
    grants.insert(db, GRANT)
    grants.insert(db, replace(GRANT, id="grant-2", uid=1001))
    assert grants.revoke(db, "grant-1", NOW)
    assert not grants.revoke(db, "grant-1", NOW)
    assert grants.revoke_all(db, 1000, NOW) == 0
    assert [one.id for one in grants.listed(db, None, NOW, ended=False)] == ["grant-2"]
    assert grants.revoke_all(db, None, NOW) == 1


def test_what_ended_is_forgotten_in_time(db: sqlite3.Connection) -> None:
    for name, more in {
        "grant-revoked": {"revoked_at": NOW}, "grant-expired": {"scope": Scope.TIMED, "expires_at": NOW},
        "grant-used": {"scope": Scope.ONCE, "used_count": 1, "last_used_at": NOW},
        "grant-in-use": {"last_used_at": NOW},
    }.items():  # fmt: skip
        grants.insert(db, replace(GRANT, id=name, **more))  # type: ignore[arg-type]  # as the fields are
    assert grants.forget_ended(db, NOW, 100) == 0
    assert grants.forget_ended(db, NOW + 1, 2) == 2
    assert grants.forget_ended(db, NOW + 1, 2) == 1
    assert [one.id for one in grants.listed(db, None, NOW, ended=True)] == ["grant-in-use"]


def test_an_approval_is_decided_once(db: sqlite3.Connection) -> None:
    approvals.insert(db, APPROVAL)
    assert approvals.get(db, "apr-1") == APPROVAL
    assert approvals.pending(db) == [APPROVAL]
    settled = ApprovalStatus.APPROVED
    assert approvals.settle(db, "apr-1", settled, NOW + 1, decision=ApprovalAction.APPROVE_ONCE, by=0, note="fine")
    assert not approvals.settle(db, "apr-1", ApprovalStatus.REJECTED, NOW + 2)
    (found,) = approvals.of_task(db, "task-1")
    assert (found.status, found.decision, found.decided_by, found.note) == (
        ApprovalStatus.APPROVED, ApprovalAction.APPROVE_ONCE, 0, "fine"
    )  # fmt: skip
    assert approvals.pending(db) == []
    assert approvals.listed(db, 1001, pending=False) == []
    assert len(approvals.listed(db, None, pending=False, task_id="task-1")) == 1
