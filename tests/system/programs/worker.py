"""A worker: `worker.py ID DIRECTORY`. It says `begun-<attempt>` there, waits for `go`, and completes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from aiosd.worker.remote import Assignment, RemoteWorker, TakenAway


def carry_out(job: Assignment, place: Path) -> None:
    """One assignment."""
    job.accept()
    job.step("look", "started", str(job.request["goal"]))
    (place / f"begun-{job.attempt}").touch()
    while not (place / "go").exists():
        job.checkpoint()
        time.sleep(0.05)
    job.step("look", "finished")
    job.summary(summary="found", progress_percent=100, risk="low")
    job.artifact("cause", text="the retry loops on 401")
    job.complete({"attempt": job.attempt, "by": sys.argv[1]})


def main() -> None:
    """Until it is killed."""
    with RemoteWorker(sys.argv[1], capabilities=["git", "terminal"]) as worker:
        for job in worker.assignments():
            try:
                carry_out(job, Path(sys.argv[2]))
            except TakenAway as error:
                print("taken away:", error, flush=True)


main()
