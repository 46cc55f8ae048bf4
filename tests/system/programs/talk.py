"""Counts to `count`, ten steps a second, and tells of each on every channel that a program has."""

from __future__ import annotations

import os
import sys
import time

from aiosd.worker.task import Task

with Task.connect() as task:
    count = task.arguments["count"]
    assert isinstance(count, int)
    for number in range(1, count + 1):
        task.checkpoint()
        print("out", number, flush=True)
        print("err", number, file=sys.stderr, flush=True)
        task.log(f"log {number}")
        task.progress(100 * number / count, f"step {number}", current_step=number, total_steps=count)
        time.sleep(0.1)
    task.artifact("counted", text="".join(f"{number}\n" for number in range(1, count + 1)), mime_type="text/plain")
    task.complete({"counted": count, "pid": os.getpid()})
