"""Version 1.1: subscriptions that outlive the daemon."""

from __future__ import annotations

LEVEL = 1
SUBLEVEL = 1

SCRIPT = """
CREATE TABLE subscriptions(
    id TEXT PRIMARY KEY,
    uid INTEGER NOT NULL,
    session TEXT NOT NULL DEFAULT '',
    scope TEXT NOT NULL,
    granted TEXT NOT NULL,
    after INTEGER NOT NULL CHECK (after >= 0),
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
