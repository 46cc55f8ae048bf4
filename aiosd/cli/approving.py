"""Showing a person exactly what they would approve, and taking their answer.

Everything that others chose is shown with its control characters made visible, so nothing can hide or overwrite what
would run. Where it is critical, an answer counts only after a countdown: what was typed ahead is thrown away.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from typing import TYPE_CHECKING

from aiosd.cli import permissions
from aiosd.cli.durations import moment
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.session import Style
from aiosd.cli.values import integer_at, list_at, object_at, string_at, text_of
from aiosd.cli.verb.list import user_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aiosd.cli.client import TaskManagerClient
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject, JsonValue

COUNTDOWN = 5
"""Seconds before an answer to a critical request counts."""
FOR_SESSION = "approve_for_session"
YES = "approve"
"""What has to be typed."""
_ID = re.compile(r"apr-[a-z0-9]{1,64}")


def visible(text: str) -> str:
    """The text with everything in it that a terminal would not show as it is, escaped as in Python."""
    return "".join(sign if _shows(sign) else sign.encode("unicode_escape").decode() for sign in text)


def _shows(sign: str) -> bool:
    category = unicodedata.category(sign)
    return sign == " " or not (category[0] == "C" or category in ("Zl", "Zp", "Zs"))


def lines(approval: JsonObject) -> Iterator[tuple[str, str]]:
    """What would run, as whom, within which limits, who asks and why; an empty name continues the row above."""
    yield "Approval", _text(approval, "id")
    by_worker = not _text(approval, "capability_id")
    if not by_worker:
        yield "Capability", f"{_text(approval, 'capability_id')} — {_text(approval, 'capability_title')}"
    if _text(approval, "kind") != "run":
        words = f"{_text(approval, 'summary')} ({_text(approval, 'kind')})"
        yield "Worker asks" if by_worker else "Program asks", words
    yield "Risk", _text(approval, "risk_level")
    yield from _json("Arguments", object_at(approval, "arguments"))
    if not by_worker:
        yield from _bounds(approval)
    uid = integer_at(approval, "uid")
    if uid is not None:
        yield "Asked by", f"{visible(user_name(uid))} ({uid}), over {_text(approval, 'requester')}"
    yield "Asked for", _text(approval, "title")
    yield from _json("Metadata", object_at(approval, "metadata"))
    yield "Task", _text(approval, "task_id")
    yield "Until", moment(string_at(approval, "expires_at"))
    yield "Hash", _text(approval, "request_hash")


def _bounds(approval: JsonObject) -> Iterator[tuple[str, str]]:
    """Of a program that aiosd runs; a worker is a process of its own, of which nothing is known."""
    program = " ".join(visible(text_of(word)) for word in list_at(approval, "exec"))
    if program:
        yield "Program", program
    yield "Runs as", _text(approval, "user")
    yield "Sees", f"network {_text(approval, 'network')}, home {_text(approval, 'home')}"
    paths = list_at(approval, "read_write_paths")
    if paths:
        yield "May write", ", ".join(visible(text_of(path)) for path in paths)
    limits = {**object_at(approval, "limits"), **object_at(approval, "requested_limits")}
    yield "Limits", ", ".join(f"{visible(key)} {text_of(value)}" for key, value in limits.items()) or "none"


def _text(value: JsonObject, key: str) -> str:
    return visible(text_of(value.get(key)))


def _json(name: str, value: JsonValue) -> Iterator[tuple[str, str]]:
    if value:
        first, *rest = json.dumps(value, ensure_ascii=False, indent=2).splitlines()
        yield name, visible(first)
        yield from (("", visible(line)) for line in rest)


async def find(client: TaskManagerClient, word: str, *, all_users: bool) -> str:
    """The whole id that a beginning means; the only one that waits when `word` is empty."""
    if _ID.fullmatch(word) is not None and len(word) == len("apr-") + 26:
        return word
    waiting = await permissions.list_approvals(client, all_users=all_users)
    found = [
        row.approval_id for row in waiting if row.approval_id.startswith((word, f"apr-{word}")) or row.task_id == word
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        die("No such approval waits", hint="'aiosctl approve --list' shows those that do", status=ExitStatus.NOT_FOUND)
    die("Several approvals wait", hint=f"which one: {', '.join(found[:4])}", status=ExitStatus.USAGE)


async def decide(
    session: Session, client: TaskManagerClient, approval_id: str, action: str | None, note: str, *,
    lasting: bool = False, read: Callable[[str], Awaitable[str]] | None = None,
) -> str:  # fmt: skip
    """Show an approval, take the person's answer when `action` is None, and send it; the status afterwards.

    `lasting`: a yes is for the session. `read`: the next line of the person, after a prompt.
    """
    approval = await permissions.get_approval(client, approval_id)
    for name, text in lines(approval):
        session.note(f"{name:>12}: {text}" if name else f"{'':14}{text}")
    if approval.get("status") != "pending":
        die(f"The approval is {_text(approval, 'status')} already", status=ExitStatus.DATA)
    if approval.get("void") is True:
        die("It is void: what it was asked for has changed", hint="reject it, and ask again", status=ExitStatus.DATA)
    chosen = action or await _asked(session, approval, read)
    if lasting and chosen == YES:
        chosen = FOR_SESSION
    return await permissions.respond(client, approval_id, chosen, string_at(approval, "request_hash"), note)


async def _asked(session: Session, approval: JsonObject, read: Callable[[str], Awaitable[str]] | None) -> str:
    if approval.get("risk_level") == "critical":
        session.note(session.paint("This is critical. Read it.", Style.BAD, session.err))
        await _count_down(session)
    prompt = f"Type '{YES}' to approve, 'reject' to reject, anything else to decide later: "
    answer = (await (_typed(session, prompt) if read is None else read(prompt))).strip()
    if answer not in (YES, "reject"):
        die("Nothing was decided", status=ExitStatus.TRY_AGAIN)
    return answer


async def _typed(session: Session, prompt: str) -> str:
    import asyncio

    print(prompt, end="", file=session.err, flush=True)
    return await asyncio.to_thread(session.read_line)


async def _count_down(session: Session) -> None:
    """Wait; then forget what was typed meanwhile."""
    import asyncio

    for left in range(COUNTDOWN, 0, -1):
        print(f"\rYour answer counts in {left} s ", end="", file=session.err, flush=True)
        await asyncio.sleep(1)
    print("\r\x1b[K" if session.is_screen(session.err) else "\n", end="", file=session.err)
    session.forget_typed()


async def offer(session: Session, task: JsonObject) -> None:
    """A task that was just made waits for an approval: say so, and on a terminal take the answer here and now.

    The answer goes over a connection of its own: the one that asked cannot approve.
    """
    asked = object_at(task, "auth_request")
    approval_id = string_at(asked, "approval_id")
    task_id = string_at(task, "task_id")
    if string_at(asked, "type") == "polkit":
        session.note(f"{visible(task_id)} waits for you to authenticate: aiosctl auth {visible(task_id)}")
    if string_at(asked, "type") != "approval" or _ID.fullmatch(approval_id) is None:
        return
    if not session.can_ask:
        session.note(f"{visible(task_id)} waits for an approval: aiosctl approve {approval_id}")
        return
    started = time.monotonic()
    async with session.connect() as second:
        status = await decide(session, second, approval_id, None, "")
    session.note(f"{approval_id} {status} after {time.monotonic() - started:.0f} s")
