"""What a service that has nothing to do costs: `python3 -m tests.bench.idle SECONDS`, in the box, prints JSON."""

from __future__ import annotations

import json
import sys
import time

from tests.bench import cgroups

AFTER_START = 5.0
"""Seconds in which a service that was started a moment ago still does what nobody waits for."""


def main() -> None:
    """Processor time (ms) and wake-ups a minute of both services, and their memory (MiB).

    Of aiosd what is resident; of the launcher's processes together what is theirs, shared memory counted once.
    """
    seconds = float(sys.argv[1])
    time.sleep(min(seconds, AFTER_START))
    before, switches = cgroups.times(), {name: cgroups.wakeups(cgroups.PARTS[name]) for name in cgroups.SERVICES}
    time.sleep(seconds)
    used = cgroups.since(before)
    found = {
        name: {
            "cpu": used[name] * 1000 * 60 / seconds,
            "wakeups": (cgroups.wakeups(cgroups.PARTS[name]) - switches[name]) * 60 / seconds,
            "resident": cgroups.resident(name) if name == "aiosd" else cgroups.share([name], ""),
        }
        for name in cgroups.SERVICES
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
