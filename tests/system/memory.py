"""Says how often each word of stdin (one a line) is in the memory of the process whose number is the argument."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def writable(pid: str) -> bytes:
    """Everything that the process can write (proc_pid_mem(5))."""
    pieces = []
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if found is not None:
                try:
                    memory.seek(int(found[1], 16))
                    pieces.append(memory.read(int(found[2], 16) - int(found[1], 16)))
                except (OSError, OverflowError):
                    continue  # [vvar] and the like
    return b"\n".join(pieces)


if __name__ == "__main__":
    content = writable(sys.argv[1])
    for word in sys.stdin.read().split():
        print(content.count(word.encode()))
