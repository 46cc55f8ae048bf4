"""`system.power.reboot`: schedule a reboot with logind (org.freedesktop.login1(5), ScheduleShutdown), by busctl(1).

The reboot is scheduled some seconds ahead and never asked for at once: so this task's own result is told, stored and
answered before the machine goes down, and is not found lost by the reboot that it made.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiosd.capabilities.program import number_argument, run, serve, text_argument

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from aiosd.worker import Task

BUSCTL = "/usr/bin/busctl"
_MANAGER = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


def work(task: Task) -> JsonObject:
    """Tell logged-in people the reason, then schedule."""
    delay = number_argument(task.arguments, "delay_seconds", 10)
    message = text_argument(task.arguments, "message")
    moment_usec = time.time_ns() // 1000 + delay * 1_000_000
    if message:
        run(call("SetWallMessage", "sb", message, "true"))
    run(call("ScheduleShutdown", "st", "reboot", str(moment_usec)))
    moment = datetime.fromtimestamp(moment_usec / 1_000_000, UTC)
    when = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
    task.progress(100, f"The system reboots at {when}")
    return {"scheduled_for": when}


def call(method: str, signature: str, *values: str) -> list[str]:
    """The argv of one call to logind. `--` ends options, so a message cannot be one."""
    return [BUSCTL, "--system", "--timeout=25", "--", "call", *_MANAGER, method, signature, *values]


def main() -> None:
    """Run as a task."""
    serve(work)


if __name__ == "__main__":
    main()
