"""The program `aiosd` before it is imported: what has to hold while it is.

Clients wait for a start, and most of it is the import of modules. So the garbage collector is off until `Daemon` turns
it on (nearly everything that a start makes stays for good, and it would look at all of it again and again), and a
thread that imports hands the interpreter to the loop more often, since the loop has short things to do.
"""

from __future__ import annotations

import gc
import sys

SWITCH = 0.001
"""Seconds after which a thread lets the others have the interpreter, for the time of the start."""


def main() -> None:
    """Runs until it is told to stop."""
    gc.disable()
    sys.setswitchinterval(SWITCH)
    from aiosd.app import main as serve

    serve()
