"""The other end of `tests.bench.rpc`: `python3 -m tests.bench.rpc_server DIRECTORY COUNT`.

An aiohttp echo and two doors, each with the real core on a real store, in one process; the second store has COUNT
finished tasks. It prints the ids of the first store's tasks when it is there, and then answers lines on standard input,
each with one line of JSON: `cpu` with the seconds of processor time that it has used, and `events COUNT BATCH PAUSE`
with the moment at which each event's commit was known, COUNT events of the first task having been committed BATCH at a
time with PAUSE seconds between.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from aiosd.auth.caller import BusSubject, Caller
from aiosd.model.event import Event, Kind, Source
from aiosd.store import journal
from aiosd.store.glances import MOST
from tests.bench import seed
from tests.rpc.serving import door
from tests.unit.core.rig import Core, core

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from aiosd.store.database import Transaction

TASKS = 2 * MOST
"""Of the first store. Asked for in turn, none is kept from the last time (`store/glances.py`)."""
ME = Caller(os.geteuid(), BusSubject(":1.7"))


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read(), content_type="application/json")


def _append(transaction: Transaction, task: str, numbers: range) -> None:
    for number in numbers:
        progress: JsonObject = {"percent": 50, "message": "half"}
        data: JsonObject = {"n": number, "progress": progress}
        made = Event(0, task, None, ME.uid, Source.WORKER, "task.progress", Kind.PROGRESS, 0, data)
        journal.append_event(transaction, made)


async def _commit(aios: Core, task: str, count: int, batch: int, pause: float) -> list[float]:
    moments: list[float] = []
    for first in range(0, count, batch):
        numbers = range(first, min(first + batch, count))
        await aios.database.write(partial(_append, task=task, numbers=numbers))
        moments += [time.monotonic()] * len(numbers)
        await asyncio.sleep(pause)
    return moments


async def _answer(aios: Core, task: str) -> None:
    while words := (await asyncio.to_thread(sys.stdin.readline)).split():
        if words[0] == "cpu":
            answer: list[float] = [time.process_time()]
        else:
            answer = await _commit(aios, task, int(words[1]), int(words[2]), float(words[3]))
        print(json.dumps(answer), flush=True)


async def serve(directory: Path, count: int) -> None:
    """Until standard input ends."""
    few, many = directory / "few", directory / "many"
    few.mkdir()
    many.mkdir()
    await seed.fill(many / "aiosd.db", count, uid=ME.uid)
    application = web.Application()
    application.router.add_post("/rpc", _echo)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, str(directory / "echo.sock")).start()
    async with core(few) as small, door(few, small.manager, small.hub), core(many) as large:
        async with door(many, large.manager, large.hub):
            made = [await small.create(caller=ME) for _ in range(TASKS)]
            for one in made:
                await small.reply("task.wait", {"task_id": one}, ME)
            print(" ".join(made), flush=True)
            await _answer(small, made[0])
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
