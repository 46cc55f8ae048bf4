"""Asks for an approval and tries meanwhile to say yes to itself; its result is what it heard, and what it was told."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time

from aiosd.worker.task import Task

told: list[str] = []


def aiosctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/usr/bin/aiosctl", *words], capture_output=True, text=True, check=False)


def say_yes() -> None:
    for _ in range(600):
        task = json.loads(aiosctl("show", os.environ["AIOS_TASK_ID"], "--json").stdout or "{}")
        asked = task.get("auth_request", {})
        if "approval_id" in asked:
            break
        time.sleep(0.1)
    tries = ("approve", asked["approval_id"], "--yes"), ("grant", "add", "test.look.low")
    told.extend(aiosctl(*words, "--json").stdout for words in tries)


trying = threading.Thread(target=say_yes)
with Task.connect() as task:
    trying.start()
    answer = task.approve("dangerous_command", "rm -rf build-cache", risk_level="high")
    trying.join()
    task.complete({"heard": answer, "told": list(told)})
