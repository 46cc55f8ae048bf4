"""Questions of a task that is being followed, and approvals that its program asks for, in place: the view makes room,
a form takes the answer.

A question that somebody else answers meanwhile, or whose task ends, is taken off the terminal again.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from aiosd.cli import approving
from aiosd.cli.failure import Failure
from aiosd.cli.form import answer
from aiosd.cli.keyboard import Keyboard
from aiosd.cli.terminal import one_line
from aiosd.cli.values import object_at, string_at
from aiosd.model.event import Kind

if TYPE_CHECKING:
    from collections.abc import Coroutine

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
        if event.kind == Kind.INPUT_REQUIRED or (
            event.kind == Kind.AUTH_REQUIRED and asks_approval(object_at(event.data, "auth_request"))
        ):
            self._wake.set()
            return True
        if event.kind == Kind.STATUS and string_at(event.data, "status") not in ("input_required", "auth_required"):
            self._withdraw()
        return False

    def _withdraw(self) -> None:
        """Somebody else answered, or the task ended. An answer that is on its way is let through."""
        if self._open is not None and self._keyboard.reading:
            self._open.cancel()

    def look(self, task: JsonObject) -> None:
        """The whole task: it may be asking already."""
        if object_at(task, "question") or asks_approval(object_at(task, "auth_request")):
            self._wake.set()

    async def run(self) -> None:
        """Ask what there is to ask, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                task = await self._client.get(self._task_id)
            except Failure:  # who follows the task sees to that, and looks again
                continue
            question, asked = object_at(task, "question"), object_at(task, "auth_request")
            if question and question.get("interaction") != self._left:
                await self._ask(
                    question.get("interaction"), "answer",
                    answer(self._session, self._client, self._keyboard, self._task_id, question),
                )  # fmt: skip
            elif asks_approval(asked) and asked.get("approval_id") != self._left:
                await self._ask(asked.get("approval_id"), "approve", self._approve(string_at(asked, "approval_id")))

    async def _approve(self, approval_id: str) -> None:
        """The person's word on what the program is about to do, over a connection of its own: the one that made the
        task cannot approve."""
        async with self._session.connect() as second:
            read = partial(self._keyboard.line, out=self._session.err)
            status = await approving.decide(self._session, second, approval_id, None, "", read=read)
        self._session.note(f"{one_line(approval_id)} {status}")

    async def _ask(self, what: object, verb: str, asking: Coroutine[None, None, None]) -> None:
        """`what`: the id of what is asked, `verb`: which one answers it later."""
        self._keyboard.forget()
        with self._view.hold():
            self._open = asyncio.create_task(asking)
            try:
                await asyncio.wait([self._open])
            finally:
                asked, self._open = self._open, None
                asked.cancel()
                with contextlib.suppress(asyncio.CancelledError, Failure, Keyboard.NoMore):
                    await asked
            self._conclude(asked, what, verb)

    def _conclude(self, asked: asyncio.Task[None], what: object, verb: str) -> None:
        if asked.cancelled():
            self._session.note("\n(the question is no longer open)")
            return
        error = asked.exception()
        if error is None:
            return
        if not isinstance(error, Failure | Keyboard.NoMore):
            raise error
        self._left = what
        if isinstance(error, Failure):
            self._session.note(one_line(error.what))
        self._session.note(f"\nNot answered; 'aiosctl {verb} {one_line(self._task_id)}' does that")


def asks_approval(asked: JsonObject) -> bool:
    """Whether a running program asks for an approval; one that waits before its task starts was offered already."""
    return string_at(asked, "type") == "approval" and "interaction" in asked
