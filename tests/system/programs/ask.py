"""Asks for a colour; the answer is the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.worker.task import Task

if TYPE_CHECKING:
    from aiosd.worker.task import Json

SCHEMA: dict[str, Json] = {
    "type": "object",
    "required": ["colour"],
    "additionalProperties": False,
    "properties": {"colour": {"enum": ["red", "green"]}},
}

with Task.connect() as task:
    answer = task.ask("Which colour?", schema=SCHEMA)
    task.complete({"colour": answer["colour"]})
