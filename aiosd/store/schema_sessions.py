"""Version 1.0 of the tables: sessions, plans, approvals and workers (seed 003). Released: never edited.

`Project Session → Conversation Thread → Task Tree → Worker Assignments → Approval Requests → Artifacts`.
"""

from __future__ import annotations

SESSIONS = """
CREATE TABLE sessions(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    uid INTEGER NOT NULL,
    title TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'closed', 'archived')),
    active_objective TEXT,
    suppress_completion INTEGER NOT NULL DEFAULT 0 CHECK (suppress_completion IN (0, 1)),
    metadata TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    closed_at INTEGER,
    archived_at INTEGER
) STRICT;
CREATE INDEX sessions_by_uid ON sessions(uid, status);
CREATE INDEX sessions_by_status ON sessions(status);

CREATE TABLE threads(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    title TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX threads_by_session ON threads(session_id);

CREATE TABLE messages(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    thread_id TEXT REFERENCES threads(id) ON DELETE CASCADE,
    uid INTEGER NOT NULL,
    role TEXT NOT NULL,
    channel TEXT NOT NULL DEFAULT '',
    content TEXT NOT NULL,
    metadata TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_by_session ON messages(session_id);
CREATE INDEX messages_by_thread ON messages(thread_id) WHERE thread_id IS NOT NULL;

CREATE TABLE plans(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL UNIQUE REFERENCES sessions(id) ON DELETE CASCADE,
    uid INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 1 CHECK (version >= 1),
    objective TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE plan_tasks(
    plan_seq INTEGER NOT NULL REFERENCES plans(seq) ON DELETE CASCADE,
    task_seq INTEGER NOT NULL REFERENCES tasks(seq) ON DELETE CASCADE,
    version INTEGER NOT NULL CHECK (version >= 1),
    PRIMARY KEY (plan_seq, task_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX plan_tasks_reverse ON plan_tasks(task_seq);

CREATE TABLE plan_diffs(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    plan_seq INTEGER NOT NULL REFERENCES plans(seq) ON DELETE CASCADE,
    uid INTEGER NOT NULL,
    base_version INTEGER NOT NULL CHECK (base_version >= 1),
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    applied_at INTEGER
) STRICT;
CREATE INDEX plan_diffs_by_plan ON plan_diffs(plan_seq);

CREATE TABLE approvals(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT,
    task_id TEXT,
    uid INTEGER NOT NULL,
    kind TEXT NOT NULL,
    summary TEXT NOT NULL DEFAULT '',
    risk_level TEXT NOT NULL DEFAULT 'medium',
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'approved', 'rejected', 'expired', 'withdrawn')),
    capability_id TEXT NOT NULL,
    request_hash TEXT NOT NULL CHECK (length(request_hash) = 64),
    requester TEXT NOT NULL,
    decision TEXT CHECK (decision IN ('approve', 'reject', 'approve_once', 'approve_for_session')),
    decided_by INTEGER,
    decided_at INTEGER,
    note TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX approvals_pending ON approvals(uid) WHERE status = 'pending';
CREATE INDEX approvals_by_uid ON approvals(uid);
CREATE INDEX approvals_by_task ON approvals(task_id) WHERE task_id IS NOT NULL;
CREATE INDEX approvals_by_session ON approvals(session_id) WHERE session_id IS NOT NULL;
CREATE INDEX approvals_expiry ON approvals(expires_at) WHERE status = 'pending';

CREATE TABLE workers(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    uid INTEGER NOT NULL,
    hostname TEXT NOT NULL DEFAULT '',
    os TEXT NOT NULL DEFAULT '',
    shell TEXT NOT NULL DEFAULT '',
    capabilities TEXT NOT NULL DEFAULT '[]',
    status TEXT NOT NULL DEFAULT 'idle',
    current_task_id TEXT,
    load REAL NOT NULL DEFAULT 0,
    registered_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    ended_at INTEGER,
    metadata TEXT NOT NULL DEFAULT '{}',
    UNIQUE (uid, id)
) STRICT;
CREATE INDEX workers_alive ON workers(heartbeat_at) WHERE ended_at IS NULL;

CREATE TABLE assignments(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    worker_uid INTEGER NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 1),
    status TEXT NOT NULL DEFAULT 'assigned'
        CHECK (status IN ('assigned', 'accepted', 'rejected', 'completed', 'failed', 'lost', 'canceled')),
    reason TEXT,
    workspace TEXT,
    created_at INTEGER NOT NULL,
    accepted_at INTEGER,
    lease_until INTEGER,
    ended_at INTEGER,
    UNIQUE (task_id, attempt)
) STRICT;
CREATE INDEX assignments_by_worker ON assignments(worker_uid, worker_id) WHERE ended_at IS NULL;
CREATE INDEX assignments_lease ON assignments(lease_until) WHERE ended_at IS NULL;
"""
