"""Which task is meant: a whole id, the beginning of one (`task-` may be left out), or `last`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.model.ids import Prefix, is_id

if TYPE_CHECKING:
    from aiosd.cli.client import TaskManagerClient

LAST = "last"
MAX_SEARCHED = 2000
"""Newest tasks among which a beginning is looked for."""
_PAGE = 100
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_SHOWN = 4


async def resolve(client: TaskManagerClient, word: str) -> str:
    """The whole id that `word` means. A word that fits none is given back for the daemon to refuse."""
    if _WORD.fullmatch(word) is None:
        die(f"{word!r} is not a task id", hint="'aiosctl list' shows the ids", status=ExitStatus.USAGE)
    if is_id(word, Prefix.TASK):
        return word
    if word == LAST:
        return await _newest(client)
    found = await _matches(client, word)
    if word in found or not found:
        return word
    if len(found) > 1:
        shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
        die(f"{word!r} is the beginning of several ids", hint=f"which one: {shown}", status=ExitStatus.USAGE)
    return found[0]


async def _newest(client: TaskManagerClient) -> str:
    from aiosd.cli.client import ListFilter

    page = await client.list_tasks(ListFilter(limit=1))
    if not page.tasks:
        die("There are no tasks", hint="'aiosctl run CAPABILITY' makes one", status=ExitStatus.NOT_FOUND)
    return page.tasks[0].task_id


async def _matches(client: TaskManagerClient, word: str) -> list[str]:
    from aiosd.cli.client import ListFilter

    beginnings = (word, f"{Prefix.TASK}-{word}")
    found: list[str] = []
    for offset in range(0, MAX_SEARCHED, _PAGE):
        page = await client.list_tasks(ListFilter(limit=_PAGE, offset=offset))
        found += [row.task_id for row in page.tasks if row.task_id.startswith(beginnings)]
        if not page.has_more:
            break
    return list(dict.fromkeys(found))
