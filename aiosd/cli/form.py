"""A question as a form on the terminal: one field after the other, wrong answers asked for again.

What the daemon refuses afterwards (its schema says more than a form can) is told, and the form starts again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.cli.durations import moment
from aiosd.cli.failure import Failure
from aiosd.cli.fields import Field, Kind, Wrong, fields, parsed
from aiosd.cli.terminal import clean
from aiosd.cli.values import object_at, string_at
from aiosd.errors import ErrorKind

if TYPE_CHECKING:
    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.keyboard import Keyboard
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject, JsonValue

TRIES = 3
"""How often a whole form is shown when the daemon refuses what it gave."""


async def answer(
    session: Session, client: TaskManagerClient, keyboard: Keyboard, task_id: str, question: JsonObject
) -> None:
    """Ask the person and send the answer. Raises Failure, and `Keyboard.NoMore` when they leave it."""
    session.note(clean(string_at(question, "prompt")))
    if until := string_at(question, "expires_at"):
        session.note(f"(until {moment(until)})")
    for left in reversed(range(TRIES)):
        given = await _filled(session, keyboard, question)
        try:
            return await client.answer(task_id, given)
        except Failure as failure:
            if failure.kind is not ErrorKind.INVALID_INPUT or not left:
                raise
            session.note(clean(failure.what))


async def _filled(session: Session, keyboard: Keyboard, question: JsonObject) -> dict[str, JsonValue]:
    schema = object_at(question, "schema")
    given: dict[str, JsonValue] = {}
    for field in fields(question):
        for place, choice in enumerate(field.choices, 1):
            session.note(f"  {place}) {choice.label}" if field.numbered else f"  {choice.label}")
        while True:
            prompt = f"{field.label}{_hint(field)}: "
            typed = await keyboard.line(prompt, session.err, hidden=field.kind is Kind.SECRET)
            if field.kind is Kind.SECRET:
                session.note("")
            if not typed and field.default is not None:
                given[field.name] = field.default
                break
            if not typed and not field.required:
                break
            try:
                if not typed:
                    raise Wrong("something")
                given[field.name] = parsed(field, typed, schema)
            except Wrong as wrong:
                session.note(f"  wanted: {wrong}" if field.kind is not Kind.SECRET else "  not what is wanted")
                continue
            break
    return given


def _hint(field: Field) -> str:
    """What may be typed, in brackets."""
    shown = {Kind.CONFIRM: "y/n", Kind.LIST: "a, b, …", Kind.JSON: "JSON", Kind.SECRET: "not shown"}
    parts = [shown[field.kind]] if field.kind in shown else []
    if field.choices and field.numbered:
        parts.append(f"1-{len(field.choices)}")
    if field.default is not None and field.kind is not Kind.SECRET:
        parts.append(f"empty: {_default(field.default)}")
    elif not field.required:
        parts.append("may stay empty")
    return f" [{'; '.join(parts)}]" if parts else ""


def _default(value: JsonValue) -> str:
    from aiosd.cli.terminal import one_line
    from aiosd.model.jsontext import dump

    if isinstance(value, bool):
        return "y" if value else "n"
    return one_line(value if isinstance(value, str) else dump(value))
