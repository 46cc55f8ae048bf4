"""A door in a process of its own: `python3 -m tests.rpc.many DIRECTORY`. Told what to do line by line on stdin.

`happen N SIZE`: N events, a commit for each ten; `rss`: answers with the resident set in KiB; anything is answered with
a line.
"""

from __future__ import annotations

import asyncio
import re
import resource
import sys
from pathlib import Path

from tests.rpc.serving import door
from tests.rpc.standin import StandIn, event

AT_ONCE = 10


def _rss() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


async def _serve(directory: Path) -> None:
    core = StandIn()
    async with door(directory, core, core):
        print("ready", flush=True)
        number = 0
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            if line[0] == "happen":
                for _ in range(int(line[1]) // AT_ONCE):
                    batch = [event(number + each + 1, size=int(line[2])) for each in range(AT_ONCE)]
                    number += AT_ONCE
                    core.commit(*batch)
                    core.log.clear()  # what is kept is the door's, not the stand-in's
                    await asyncio.sleep(0)
            print(_rss(), flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(_serve(Path(sys.argv[1])))
