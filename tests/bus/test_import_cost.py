"""aiosctl imports the connection at every start: it must not bring more than the library and asyncio."""

from __future__ import annotations

import json
import subprocess
import sys

_SCRIPT = """
import json, sys
import dbus_fast.aio
before = set(sys.modules)
import aiosd.bus.connection
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_connection_brings_nothing_but_itself() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], check=True, capture_output=True, text=True, timeout=30)
    own = ["aiosd", "aiosd.bus", "aiosd.bus.connection", "aiosd.bus.message", "aiosd.model", "aiosd.model.later"]
    assert json.loads(done.stdout) == own
