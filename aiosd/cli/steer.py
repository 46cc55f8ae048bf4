"""What cancel, pause and resume have in common: the same act on several tasks, and a word about each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.cli.failure import Failure
from aiosd.cli.ids import resolve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonValue


async def each(
    session: Session, words: tuple[str, ...], act: Callable[[TaskManagerClient, str], Awaitable[None]], done: str
) -> int:
    """Do `act` to every task; one that cannot be done does not keep the others from it. `done`: what to say."""
    results: list[JsonValue] = []
    failures: list[tuple[str, Failure]] = []
    async with session.connect() as client:
        for word in words:
            task_id = word
            try:
                task_id = await resolve(client, word)
                await act(client, task_id)
            except Failure as failure:
                if len(words) == 1:
                    raise
                failures.append((task_id, failure))
                results.append({"task_id": task_id, "error": failure.wire()})
            else:
                results.append({"task_id": task_id})
                session.note(f"{task_id} {done}")
    if session.json:
        session.emit({"tasks": results})
    for task_id, refusal in failures:
        session.note(f"aiosctl: {task_id}: {refusal.what}")
    return failures[0][1].status if failures else 0
