"""Logging to the journal: one line a message, its priority in front (sd-daemon(3)), nothing twice."""

from __future__ import annotations

import logging
import sys

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


class JournalFormatter(logging.Formatter):
    """`<3>message`; the lines of a traceback each with the same priority."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as lines for standard error."""
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())


def set_up(level: int = logging.INFO) -> None:
    """Send everything from `level` up to standard error, which the service manager connects to the journal."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JournalFormatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
