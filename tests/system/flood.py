"""Ten thousand creations at once, by one user: `python3 -m tests.system.flood COUNT`, in the box, as that user.

Over the lines socket, on a few connections and as many calls on each as it takes. Prints how they ended, as one JSON
object: the name of the error, `answered` for a task that is there, `cut off` where the connection ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

from aiosd.client import AsyncClient, CallError

CONNECTIONS = 8


async def one(client: AsyncClient, ends: Counter[str]) -> None:
    """A creation."""
    try:
        await client.create("test.sleep", {"seconds": 0})
        ends["answered"] += 1
    except CallError as error:
        ends[error.error_id] += 1
    except OSError:
        ends["cut off"] += 1


async def connection(count: int, ends: Counter[str]) -> None:
    """So many of them on one connection."""
    async with AsyncClient() as client:
        await asyncio.gather(*(one(client, ends) for _ in range(count)))


async def main() -> None:
    """All of them."""
    count, ends = int(sys.argv[1]), Counter[str]()
    await asyncio.gather(*(connection(count // CONNECTIONS, ends) for _ in range(CONNECTIONS)))
    print(json.dumps(ends))


if __name__ == "__main__":
    asyncio.run(main())
