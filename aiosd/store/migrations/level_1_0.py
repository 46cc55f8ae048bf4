"""Version 1.0: the first schema. Its parts, each a text of SQL, are in `aiosd/store/schema_*.py`."""

from __future__ import annotations

from aiosd.store.schema_record import RECORD
from aiosd.store.schema_sessions import SESSIONS
from aiosd.store.schema_tasks import TASKS

LEVEL = 1
SUBLEVEL = 0

META = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT;
"""

SCRIPT = META + SESSIONS + TASKS + RECORD
