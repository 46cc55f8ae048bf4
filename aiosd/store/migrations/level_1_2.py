"""Version 1.2: what workers need. A task says what its worker must have and where it is to work; a worker says how it
is known to be there, and for whom it works. An older program lives with it: it has no workers, and leaves what waits
for one alone.
"""

from __future__ import annotations

LEVEL = 1
SUBLEVEL = 2

SCRIPT = """
ALTER TABLE tasks ADD COLUMN requires TEXT;
ALTER TABLE tasks ADD COLUMN workspace TEXT;
ALTER TABLE tasks ADD COLUMN worker_id TEXT;
CREATE INDEX tasks_planned ON tasks(priority DESC, seq) WHERE ended_at IS NULL AND held = 0 AND capability_id = '';
CREATE INDEX assignments_open ON assignments(task_id) WHERE ended_at IS NULL;
ALTER TABLE workers ADD COLUMN registration TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN liveness TEXT NOT NULL DEFAULT 'heartbeat'
    CHECK (liveness IN ('descriptor', 'heartbeat'));
ALTER TABLE workers ADD COLUMN serves TEXT NOT NULL DEFAULT 'own' CHECK (serves IN ('own', 'all'));
ALTER TABLE workers ADD COLUMN capacity INTEGER NOT NULL DEFAULT 1 CHECK (capacity >= 1);
ALTER TABLE workers ADD COLUMN reason TEXT;
"""
