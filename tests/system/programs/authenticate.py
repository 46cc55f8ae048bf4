"""Asks for an API key; tells only how long it was."""

from __future__ import annotations

from aiosd.worker.task import Task

with Task.connect() as task:
    given = task.authenticate("api_key", provider="The Provider", reason="for a test", timeout_ms=120_000)
    task.log("authenticated")
    task.complete({"length": len(str(given["api_key"]))})
