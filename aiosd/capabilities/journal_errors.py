"""`system.journal.errors`: the newest errors in the journal that the caller may read, by journalctl(1)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiosd.capabilities.program import number_argument, run, serve, text_argument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.worker import Task

JOURNALCTL = "/usr/bin/journalctl"
MAX_MESSAGE = 1000
MAX_RESULT_BYTES = 96 * 1024
"""A result has to fit into one event line, which is at most 256 KiB, after escaping."""


def work(task: Task) -> JsonObject:
    """Ask for one entry more than is wanted, so as to know whether there were more."""
    hours = number_argument(task.arguments, "hours", 24)
    limit = number_argument(task.arguments, "limit", 100)
    unit = text_argument(task.arguments, "unit")
    argv = [JOURNALCTL, "--output=json", "--priority=err", "--no-pager", "--quiet", "--reverse"]
    argv += [f"--since=-{hours}h", f"--lines={limit + 1}"]
    argv += [f"--unit={unit}"] if unit else []
    task.progress(0, f"Reading the journal of the last {hours} hours")
    entries, truncated = chosen(run(argv).splitlines(), limit)
    task.progress(100, f"{len(entries)} errors")
    return {"entries": entries, "count": len(entries), "truncated": truncated}


def chosen(lines: Iterable[str], limit: int) -> tuple[list[JsonValue], bool]:
    """The entries that fit, and whether some were left out."""
    entries: list[JsonValue] = []
    size = 0
    for line in lines:
        found = entry(json.loads(line))
        size += len(json.dumps(found))
        if len(entries) == limit or size > MAX_RESULT_BYTES:
            return entries, True
        entries.append(found)
    return entries, False


def entry(fields: dict[str, object]) -> JsonObject:
    """One entry of the export (systemd.journal-fields(7)); a field that is absent is left out."""
    moment = datetime.fromtimestamp(int(_text(fields, "__REALTIME_TIMESTAMP") or "0") / 1_000_000, UTC)
    found: dict[str, JsonValue] = {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "priority": int(_text(fields, "PRIORITY") or "3"),
        "message": _text(fields, "MESSAGE")[:MAX_MESSAGE],
    }
    for name, field in (("unit", "_SYSTEMD_UNIT"), ("identifier", "SYSLOG_IDENTIFIER"), ("pid", "_PID")):
        text = _text(fields, field)
        if text:
            found[name] = int(text) if name == "pid" else text[:256]
    return found


def _text(fields: dict[str, object], name: str) -> str:
    """journalctl writes what is not text as a list of numbers, a repeated field as a list, a long one as null."""
    value = fields.get(name)
    if isinstance(value, list):
        numbers = [item for item in value if isinstance(item, int)]
        if len(numbers) == len(value):
            return bytes(number & 0xFF for number in numbers).decode("utf-8", "replace")
        value = value[0]
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else ""


def main() -> None:
    """Run as a task."""
    serve(work)


if __name__ == "__main__":
    main()
