"""A small client of the JSON-RPC door, for Python programs that are no D-Bus programs. Standard library only.

    from aiosd.client import Client

    with Client() as aios:
        task = aios.create("system.info.read")
        for event in aios.events(task["task_id"]):
            print(event.kind, event.data)
            if event.kind in ("task.result", "task.error"):
                break

`AsyncClient` is the same for asyncio, on one connection for all calls and events. Both raise `CallError` for what the
service refuses, and OSError when it cannot be reached.
"""

from aiosd.client.asynchronous import AsyncClient
from aiosd.client.messages import CallError, Event, ProtocolError
from aiosd.client.plain import Client

__all__ = ["AsyncClient", "CallError", "Client", "Event", "ProtocolError"]
