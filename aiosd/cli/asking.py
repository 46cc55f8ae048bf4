"""Questions of a task that is being followed, asked in place: the view makes room, a form takes the answer.

A question that somebody else answers meanwhile, or whose task ends, is taken off the terminal again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiosd.cli.failure import Failure
from aiosd.cli.form import answer
from aiosd.cli.keyboard import Keyboard
from aiosd.cli.terminal import one_line
from aiosd.cli.values import object_at, string_at
from aiosd.model.event import Kind

if TYPE_CHECKING:
    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.follow import View
    from aiosd.cli.session import Session
    from aiosd.cli.values import TaskEvent
    from aiosd.model.jsontext import JsonObject


class Questions:
    """The questions of one task."""

    def __init__(self, session: Session, client: TaskManagerClient, task_id: str, view: View) -> None:
        """`run` has to run while the task is followed."""
        self._session = session
        self._client = client
        self._task_id = task_id
        self._view = view
        self._keyboard = Keyboard()
        self._wake = asyncio.Event()
        self._open: asyncio.Task[None] | None = None
        self._left: object = None
        """The interaction that the person left unanswered: it is not asked again."""

    def take(self, event: TaskEvent) -> bool:
        """Whether this event is seen to here, so that nothing is said about it."""
        if event.kind == Kind.INPUT_REQUIRED:
            self._wake.set()
            return True
        if event.kind == Kind.STATUS and string_at(event.data, "status") != "input_required":
            self._withdraw()
        return False

    def _withdraw(self) -> None:
        """Somebody else answered, or the task ended. An answer that is on its way is let through."""
        if self._open is not None and self._keyboard.reading:
            self._open.cancel()

    def look(self, task: JsonObject) -> None:
        """The whole task: it may be asking already."""
        if object_at(task, "question"):
            self._wake.set()

    async def run(self) -> None:
        """Ask what there is to ask, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                question = object_at(await self._client.get(self._task_id), "question")
            except Failure:  # who follows the task sees to that, and looks again
                continue
            if question and question.get("interaction") != self._left:
                await self._ask(question)

    async def _ask(self, question: JsonObject) -> None:
        self._keyboard.forget()
        with self._view.hold():
            self._open = asyncio.create_task(
                answer(self._session, self._client, self._keyboard, self._task_id, question)
            )
            try:
                await asyncio.wait([self._open])
            finally:
                asked, self._open = self._open, None
                asked.cancel()
                with contextlib.suppress(asyncio.CancelledError, Failure, Keyboard.NoMore):
                    await asked
            self._conclude(asked, question)

    def _conclude(self, asked: asyncio.Task[None], question: JsonObject) -> None:
        if asked.cancelled():
            self._session.note("\n(the question is no longer open)")
            return
        error = asked.exception()
        if error is None:
            return
        if not isinstance(error, Failure | Keyboard.NoMore):
            raise error
        self._left = question.get("interaction")
        if isinstance(error, Failure):
            self._session.note(one_line(error.what))
        self._session.note(f"\nNot answered; 'aiosctl answer {one_line(self._task_id)}' does that")
