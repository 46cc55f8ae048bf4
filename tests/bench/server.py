"""The floor of a call: a server on the system bus that answers with what it is given, on the product's D-Bus library.

`python3 -m tests.bench.server`; prints a line when it is there, ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys

from aiosd.bus.connection import MethodCall, SystemBus

NAME = "org.aios.Bench"
PATH = "/org/aios/Bench"


async def main() -> None:
    """Serve until standard input ends."""
    async with SystemBus() as bus:

        def answer(call: MethodCall) -> None:
            bus.send_reply(call, call.signature, call.body)

        bus.serve(answer)
        if not await bus.request_name(NAME):
            raise SystemExit(f"{NAME} is taken")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
