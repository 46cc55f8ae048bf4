"""Version 1.3: how much each user keeps by talking: messages, diffs of plans, metadata of sessions, and the events that
tell of them or of what workers report. An older program keeps the totals right without knowing, by their triggers.

In bytes. A message and a diff count for who wrote them, an event for the owner of its session or task. What programs of
this machine say is bounded for each run, by its event file.
"""

from __future__ import annotations

LEVEL = 1
SUBLEVEL = 3

_COUNTED = {
    "messages": ("length(CAST({0}.content AS BLOB)) + length(CAST({0}.metadata AS BLOB))", ""),
    "plan_diffs": ("length(CAST({0}.body AS BLOB))", ""),
    "sessions": ("length(CAST({0}.metadata AS BLOB))", ""),
    "events": (
        "length(CAST({0}.payload AS BLOB))",
        "CASE WHEN {0}.task_id IS NULL THEN {0}.session_id IS NOT NULL ELSE {0}.worker_id IS NOT NULL END",
    ),
}
"""Table -> what of a row counts, and which rows do (all of them when empty)."""


def _of(table: str) -> str:
    size, which = _COUNTED[table]
    added, removed = size.format("new"), size.format("old")
    when_new, when_old = (f" WHEN {which.format(row)}" if which else "" for row in ("new", "old"))
    where = f" WHERE {which.format(table)}" if which else " WHERE true"
    return f"""
INSERT INTO talk_usage SELECT uid, sum({size.format(table)}) FROM {table}{where} GROUP BY uid
    ON CONFLICT DO UPDATE SET size = size + excluded.size;
CREATE TRIGGER {table}_talk_insert AFTER INSERT ON {table}{when_new} BEGIN
    INSERT INTO talk_usage VALUES (new.uid, {added}) ON CONFLICT DO UPDATE SET size = size + excluded.size;
END;
CREATE TRIGGER {table}_talk_delete AFTER DELETE ON {table}{when_old} BEGIN
    UPDATE talk_usage SET size = max(size - ({removed}), 0) WHERE uid = old.uid;
END;
"""  # noqa: S608 - names of our own tables


SCRIPT = """
CREATE TABLE talk_usage(
    uid INTEGER PRIMARY KEY,
    size INTEGER NOT NULL CHECK (size >= 0)
) STRICT;
""" + "".join(map(_of, _COUNTED))
