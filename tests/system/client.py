"""A D-Bus client inside a box, as a person in a session: reads requests from stdin, writes answers to stdout.

`python3 -m tests.system.client`, one JSON object a line. `caller.Caller` is its other side. Requests:

    {"id": 1, "call": {"destination", "path", "interface", "member", "signature", "body",
              "interactive", "timeout"}}           "keep": true holds the answer's descriptors unread
    {"id": 2, "agent": true}                               become the authentication agent of this process
    {"id": 3, "dialog": {"cookie": "…", "password": "…"}}  answer a dialog; the password null dismisses it

Answers come in any order: {"id": 1, "body": […], "contents": [what each descriptor gave up to its end]} or
{"id": 1, "error": "org.…", "message": "…", "data": "the second string"}. A signal is
{"signal": {…}}, as it arrives, a dialog likewise (`agent`). The first line is {"name": ":1.42", "session": "c1"}.
A variant is {"$variant": [signature, value]}; text keeps lone surrogates.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

from aiosd.bus.connection import BusCallError, Call, SystemBus, Variant
from tests.system.agent import Agent

if TYPE_CHECKING:
    from aiosd.bus.message import BusValue, Signal
    from aiosd.model.jsontext import JsonObject, JsonValue

VARIANT = "$variant"
kept: list[int] = []
"""Descriptors that are held to the end."""


def from_json(value: JsonValue) -> BusValue:
    """A message body's value as it came over the pipe."""
    if isinstance(value, dict):
        if VARIANT in value:
            inner = value[VARIANT]
            assert isinstance(inner, list)
            return Variant(str(inner[0]), from_json(inner[1]))
        return {key: from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_json(item) for item in value]
    assert isinstance(value, str | int | float)
    return value


def to_json(value: BusValue) -> JsonValue:
    """The opposite; variants lose their signature."""
    if isinstance(value, Variant):
        inner: BusValue = value.value
        return to_json(inner)
    if isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return list(value)
    if hasattr(value, "items"):
        return {key: to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value]


def tell(message: JsonObject) -> None:
    """One line to the other side."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tell_signal(signal: Signal) -> None:
    """A signal that a match brought here."""
    tell({
        "signal": {
            "path": signal.path, "interface": signal.interface, "member": signal.member,
            "body": [to_json(value) for value in signal.body],
        }
    })  # fmt: skip


def read_all(descriptor: int) -> str:
    """What a descriptor gives, up to its end."""
    with os.fdopen(descriptor, "rb") as file:
        return file.read().decode("utf-8", "surrogateescape")


async def answer(bus: SystemBus, agent: Agent, request: JsonObject) -> None:
    """Do what one line asks."""
    call, dialog = request.get("call"), request.get("dialog")
    if isinstance(call, dict):
        await pass_on(bus, request["id"], call)
        return
    if isinstance(dialog, dict):
        password = dialog["password"]
        await agent.answer(str(dialog["cookie"]), None if password is None else str(password))
    else:
        await agent.register()
    tell({"id": request["id"], "body": [], "contents": []})


async def pass_on(bus: SystemBus, number: JsonValue, wanted: JsonObject) -> None:
    """Make a call and tell its answer."""
    body, timeout = wanted["body"], wanted["timeout"]
    assert isinstance(body, list)
    assert isinstance(timeout, int | float)
    call = Call(
        str(wanted["destination"]), str(wanted["path"]),
        None if wanted["interface"] is None else str(wanted["interface"]), str(wanted["member"]),
        str(wanted["signature"]), tuple(from_json(value) for value in body), timeout=timeout,
        allow_interactive=bool(wanted["interactive"]),
    )  # fmt: skip
    try:
        answered = await bus.call(call)
    except BusCallError as error:
        data = str(error.body[1]) if len(error.body) > 1 else ""
        tell({"id": number, "error": error.name, "message": error.message, "data": data})
        return
    if wanted.get("keep") is True:
        kept.extend(answered.fds)
        tell({"id": number, "body": [to_json(value) for value in answered.body], "contents": []})
        return
    contents: list[JsonValue] = [await asyncio.to_thread(read_all, fd) for fd in answered.fds]
    tell({"id": number, "body": [to_json(value) for value in answered.body], "contents": contents})


async def main() -> None:
    """Serve until stdin ends."""
    reader = asyncio.StreamReader(limit=16 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with SystemBus() as bus, asyncio.TaskGroup() as group:
        bus.on_signal(tell_signal)
        agent = Agent(bus, tell)
        tell({"name": bus.unique_name, "session": os.environ.get("XDG_SESSION_ID", "")})
        pending = set()
        while line := await reader.readline():
            task = group.create_task(answer(bus, agent, json.loads(line)))
            pending.add(task)
            task.add_done_callback(pending.discard)
        for task in pending:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
