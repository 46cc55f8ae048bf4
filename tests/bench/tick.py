"""The program of bench.tick."""

from __future__ import annotations

import itertools
import time

from aiosd.worker.task import Task

EVERY = 0.02

with Task.connect() as task:
    for number in itertools.count(1):
        task.checkpoint()
        task.log(f"tick {number}")
        time.sleep(EVERY)
