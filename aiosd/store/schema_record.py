"""Version 1.0 of the tables that record: events, deliveries, the audit trail. Part of a released version: never edited.

`events.seq` is the number in an event id. It never comes twice (AUTOINCREMENT), so replay from any id is exact even
after retention has pruned. An outbox row is written with its event and
goes when it is delivered; `hook_id` and `event_seq` make the delivery's order. `secrets` holds what was given to a task
and has not reached its program yet.
"""

from __future__ import annotations

RECORD = """
CREATE TABLE events(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT,
    session_id TEXT,
    worker_id TEXT,
    uid INTEGER NOT NULL,
    source TEXT NOT NULL CHECK (source IN ('user', 'manager', 'system', 'worker')),
    type TEXT NOT NULL,
    kind TEXT NOT NULL,
    time INTEGER NOT NULL,
    payload TEXT NOT NULL,
    old_status TEXT,
    new_status TEXT,
    phase TEXT
) STRICT;
CREATE INDEX events_by_task ON events(task_id) WHERE task_id IS NOT NULL;
CREATE INDEX events_by_session ON events(session_id) WHERE session_id IS NOT NULL;
CREATE INDEX events_by_worker ON events(worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX events_by_uid ON events(uid);
CREATE INDEX events_by_time ON events(time);

CREATE TABLE webhooks(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES tasks(id) ON DELETE CASCADE,
    uid INTEGER NOT NULL,
    url TEXT NOT NULL,
    events TEXT NOT NULL DEFAULT '[]',
    secret BLOB,
    max_retries INTEGER NOT NULL,
    retry_delay_ms INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'parked', 'ended')),
    waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    delivered INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    last_at INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX webhooks_once ON webhooks(uid, task_id, url) WHERE state <> 'ended';
CREATE INDEX webhooks_by_task ON webhooks(task_id);
CREATE INDEX webhooks_by_uid ON webhooks(uid);
CREATE INDEX webhooks_to_do ON webhooks(seq) WHERE state = 'active' AND waiting > 0;

CREATE TABLE outbox(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    event_seq INTEGER NOT NULL,
    hook_id TEXT NOT NULL REFERENCES webhooks(id) ON DELETE CASCADE,
    due_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    UNIQUE (hook_id, event_seq)
) STRICT;
CREATE TRIGGER outbox_count_insert AFTER INSERT ON outbox BEGIN
    UPDATE webhooks SET waiting = waiting + 1 WHERE id = new.hook_id;
END;
CREATE TRIGGER outbox_count_delete AFTER DELETE ON outbox BEGIN
    UPDATE webhooks SET waiting = waiting - 1 WHERE id = old.hook_id;
END;

CREATE TABLE secrets(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL REFERENCES tasks(id) ON DELETE CASCADE,
    run_id TEXT NOT NULL,
    uid INTEGER NOT NULL,
    interaction TEXT NOT NULL,
    sealed BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX secrets_by_task ON secrets(task_id);
CREATE INDEX secrets_by_run ON secrets(run_id);

CREATE TABLE audit(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time INTEGER NOT NULL,
    uid INTEGER,
    actor TEXT NOT NULL,
    kind TEXT NOT NULL,
    task_id TEXT,
    details TEXT NOT NULL DEFAULT '{}',
    previous BLOB NOT NULL,
    hash BLOB NOT NULL,
    key_id TEXT,
    signature BLOB
) STRICT;
CREATE INDEX audit_by_time ON audit(time);
CREATE INDEX audit_by_task ON audit(task_id) WHERE task_id IS NOT NULL;
CREATE INDEX audit_by_uid ON audit(uid) WHERE uid IS NOT NULL;
CREATE TABLE audit_keys(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    public BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    endorser TEXT,
    endorsement BLOB
) STRICT;

CREATE TABLE grants(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    uid INTEGER NOT NULL,
    capability_id TEXT NOT NULL,
    level INTEGER NOT NULL CHECK (level BETWEEN 0 AND 4),
    scope TEXT NOT NULL CHECK (scope IN ('once', 'task', 'session', 'timed', 'persistent')),
    task_id TEXT,
    session_id TEXT,
    constraints TEXT NOT NULL DEFAULT '{}',
    granted_by INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_count INTEGER NOT NULL DEFAULT 0 CHECK (used_count >= 0),
    last_used_at INTEGER
) STRICT;
CREATE INDEX grants_valid ON grants(uid) WHERE revoked_at IS NULL;
CREATE INDEX grants_by_uid ON grants(uid);
"""
