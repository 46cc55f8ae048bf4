"""Version 1.0 of the tables of tasks, their runs and what they produce. Part of a released version: never edited.

Times are microseconds since the epoch (UTC), durations milliseconds where the name says `_ms`; JSON is text in the form
`aiosd.model.jsontext.dump` gives. `tasks.seq` is the order of creation, so it is what "newest first" sorts by, and
every index ends with it (SQLite appends the rowid): a page of a list reads as many rows as it shows, however many there
are. Totals come from `task_counts`, which triggers keep.
"""

from __future__ import annotations

TASKS = """
CREATE TABLE tasks(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    uid INTEGER NOT NULL,
    creator TEXT NOT NULL DEFAULT '{}',
    capability_id TEXT,
    title TEXT NOT NULL DEFAULT '',
    level INTEGER NOT NULL CHECK (level BETWEEN 0 AND 4),
    status TEXT NOT NULL CHECK (status IN ('pending', 'working', 'paused', 'input_required', 'auth_required',
                                           'completed', 'failed', 'canceled')),
    phase TEXT NOT NULL,
    priority INTEGER NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0 AND 3),
    arguments TEXT NOT NULL DEFAULT '{}',
    metadata TEXT NOT NULL DEFAULT '{}',
    timeout_ms INTEGER CHECK (timeout_ms > 0),
    retry_max INTEGER NOT NULL DEFAULT 1 CHECK (retry_max >= 1),
    retry_delay_ms INTEGER NOT NULL DEFAULT 1000 CHECK (retry_delay_ms >= 0),
    not_before INTEGER,
    idempotency_key TEXT,
    parent_id TEXT,
    session_id TEXT,
    kind TEXT,
    goal TEXT,
    constraints TEXT,
    execution_mode TEXT NOT NULL DEFAULT 'independent'
        CHECK (execution_mode IN ('independent', 'collaborative', 'research_only')),
    risk_level TEXT,
    limits TEXT,
    progress TEXT,
    summary TEXT,
    result TEXT,
    error TEXT,
    question TEXT,
    auth_request TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    retry_count INTEGER NOT NULL DEFAULT 0,
    retry_at INTEGER,
    retry_of TEXT,
    reason TEXT,
    cancel_reason TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    updated_at INTEGER NOT NULL,
    ended_at INTEGER,
    deadline INTEGER,
    estimated_ms INTEGER,
    handoff INTEGER NOT NULL DEFAULT 0 CHECK (handoff IN (0, 1)),
    shared_context TEXT,
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'failed', 'canceled')))
) STRICT;
CREATE UNIQUE INDEX tasks_idempotency ON tasks(uid, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX tasks_by_uid ON tasks(uid);
CREATE INDEX tasks_by_status ON tasks(status);
CREATE INDEX tasks_by_uid_status ON tasks(uid, status);
CREATE INDEX tasks_by_capability ON tasks(capability_id);
CREATE INDEX tasks_by_uid_capability ON tasks(uid, capability_id);
CREATE INDEX tasks_by_update ON tasks(updated_at);
CREATE INDEX tasks_by_uid_update ON tasks(uid, updated_at);
CREATE INDEX tasks_by_priority ON tasks(priority);
CREATE INDEX tasks_by_uid_priority ON tasks(uid, priority);
CREATE INDEX tasks_by_session ON tasks(session_id) WHERE session_id IS NOT NULL;
CREATE INDEX tasks_by_parent ON tasks(parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_active_by_session ON tasks(session_id) WHERE status IN ('pending', 'working');
CREATE INDEX tasks_open_by_session ON tasks(session_id) WHERE session_id IS NOT NULL AND ended_at IS NULL;
CREATE INDEX tasks_open_children ON tasks(uid, parent_id) WHERE parent_id IS NOT NULL AND ended_at IS NULL;
CREATE INDEX tasks_open ON tasks(priority DESC, seq) WHERE ended_at IS NULL AND held = 0 AND phase <> 'planning';
CREATE INDEX tasks_held ON tasks(seq) WHERE held = 1 AND ended_at IS NULL;
CREATE INDEX tasks_open_by_uid ON tasks(uid) WHERE ended_at IS NULL;
CREATE INDEX tasks_ended ON tasks(ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_deadline ON tasks(deadline) WHERE deadline IS NOT NULL AND ended_at IS NULL;

CREATE TABLE task_counts(
    uid INTEGER NOT NULL,
    capability_id TEXT NOT NULL,
    status TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (uid, capability_id, status)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER tasks_count_insert AFTER INSERT ON tasks BEGIN
    INSERT INTO task_counts VALUES (new.uid, coalesce(new.capability_id, ''), new.status, 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER tasks_count_delete AFTER DELETE ON tasks BEGIN
    UPDATE task_counts SET count = count - 1
        WHERE uid = old.uid AND capability_id = coalesce(old.capability_id, '') AND status = old.status;
    DELETE FROM task_counts
        WHERE uid = old.uid AND capability_id = coalesce(old.capability_id, '') AND status = old.status AND count = 0;
END;
CREATE TRIGGER tasks_count_update AFTER UPDATE OF status, uid, capability_id ON tasks
WHEN new.status IS NOT old.status OR new.uid IS NOT old.uid OR new.capability_id IS NOT old.capability_id BEGIN
    UPDATE task_counts SET count = count - 1
        WHERE uid = old.uid AND capability_id = coalesce(old.capability_id, '') AND status = old.status;
    DELETE FROM task_counts
        WHERE uid = old.uid AND capability_id = coalesce(old.capability_id, '') AND status = old.status AND count = 0;
    INSERT INTO task_counts VALUES (new.uid, coalesce(new.capability_id, ''), new.status, 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TRIGGER tasks_promote BEFORE DELETE ON tasks BEGIN
    UPDATE tasks SET parent_id = old.parent_id WHERE parent_id = old.id;
END;

CREATE TABLE history(
    id INTEGER PRIMARY KEY,
    task_seq INTEGER NOT NULL REFERENCES tasks(seq) ON DELETE CASCADE,
    state TEXT NOT NULL,
    phase TEXT NOT NULL,
    time INTEGER NOT NULL,
    reason TEXT,
    metadata TEXT
) STRICT;
CREATE INDEX history_by_task ON history(task_seq);
CREATE INDEX history_by_time ON history(time);

CREATE TABLE dependencies(
    task_seq INTEGER NOT NULL REFERENCES tasks(seq) ON DELETE CASCADE,
    on_seq INTEGER NOT NULL REFERENCES tasks(seq) ON DELETE CASCADE,
    PRIMARY KEY (task_seq, on_seq),
    CHECK (task_seq <> on_seq)
) STRICT;
CREATE INDEX dependencies_reverse ON dependencies(on_seq);

CREATE TABLE runs(
    id TEXT PRIMARY KEY,
    task_seq INTEGER NOT NULL REFERENCES tasks(seq) ON DELETE CASCADE,
    attempt INTEGER NOT NULL CHECK (attempt >= 1),
    state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'ended')),
    boot_id TEXT NOT NULL,
    unit TEXT,
    control_group TEXT,
    pid INTEGER,
    uid INTEGER,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    events_offset INTEGER NOT NULL DEFAULT 0 CHECK (events_offset >= 0),
    limits TEXT,
    exit TEXT,
    usage TEXT,
    reason TEXT,
    removed INTEGER NOT NULL DEFAULT 0 CHECK (removed IN (0, 1))
) STRICT;
CREATE INDEX runs_by_task ON runs(task_seq, attempt);
CREATE INDEX runs_open ON runs(state) WHERE state <> 'ended';
CREATE INDEX runs_kept ON runs(ended_at) WHERE removed = 0 AND state = 'ended';

CREATE TABLE blobs(
    sha256 TEXT PRIMARY KEY CHECK (length(sha256) = 64),
    size INTEGER NOT NULL CHECK (size >= 0),
    refs INTEGER NOT NULL DEFAULT 0 CHECK (refs >= 0),
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX blobs_unused ON blobs(created_at) WHERE refs = 0;

CREATE TABLE artifacts(
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL,
    uid INTEGER NOT NULL,
    run_id TEXT,
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    mime_type TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 1 CHECK (version >= 1),
    parts TEXT NOT NULL DEFAULT '[]',
    metadata TEXT NOT NULL DEFAULT '{}',
    size INTEGER NOT NULL DEFAULT 0 CHECK (size >= 0),
    UNIQUE (task_id, key)
) STRICT;
CREATE INDEX artifacts_by_uid ON artifacts(uid);

CREATE TABLE artifact_usage(
    uid INTEGER PRIMARY KEY,
    count INTEGER NOT NULL CHECK (count >= 0),
    size INTEGER NOT NULL CHECK (size >= 0)
) STRICT;
CREATE TRIGGER artifacts_usage_insert AFTER INSERT ON artifacts BEGIN
    INSERT INTO artifact_usage VALUES (new.uid, 1, new.size)
        ON CONFLICT DO UPDATE SET count = count + 1, size = size + excluded.size;
END;
CREATE TRIGGER artifacts_usage_delete AFTER DELETE ON artifacts BEGIN
    UPDATE artifact_usage SET count = count - 1, size = size - old.size WHERE uid = old.uid;
END;
CREATE TRIGGER artifacts_usage_update AFTER UPDATE OF size ON artifacts WHEN new.size <> old.size BEGIN
    UPDATE artifact_usage SET size = size - old.size + new.size WHERE uid = old.uid;
END;

CREATE TABLE artifact_blobs(
    artifact_seq INTEGER NOT NULL REFERENCES artifacts(seq) ON DELETE CASCADE,
    sha256 TEXT NOT NULL REFERENCES blobs(sha256),
    PRIMARY KEY (artifact_seq, sha256)
) STRICT;
CREATE INDEX artifact_blobs_reverse ON artifact_blobs(sha256);
CREATE TRIGGER artifact_blobs_insert AFTER INSERT ON artifact_blobs BEGIN
    UPDATE blobs SET refs = refs + 1 WHERE sha256 = new.sha256;
END;
CREATE TRIGGER artifact_blobs_delete AFTER DELETE ON artifact_blobs BEGIN
    UPDATE blobs SET refs = refs - 1 WHERE sha256 = old.sha256;
END;
"""
