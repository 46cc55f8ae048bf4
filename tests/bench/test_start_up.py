"""How fast `aiosctl` starts, beside the floor measured in turns with it. Here, because here nothing else runs."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.unit.cli.test_program import AIOSCTL, ROOT, served

if TYPE_CHECKING:
    from tests.unit.cli.test_program import Served

__all__ = ["served"]
"""The fixture: a bus with a scripted daemon."""


def test_status_takes_at_most_one_and_a_half_imports_of_the_library(served: Served) -> None:
    """`aiosctl status`, the call included, is at most 1.5 times as slow as the import of the D-Bus library alone."""
    library, own = [sys.executable, "-c", "import dbus_fast.aio"], [*AIOSCTL, "status"]
    best = {"library": float("inf"), "own": float("inf")}
    for _ in range(12):
        for name, words in (("library", library), ("own", own)):
            begin = time.perf_counter()
            subprocess.run(words, env=served.environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            best[name] = min(best[name], time.perf_counter() - begin)
    ratio = best["own"] / best["library"]
    print(f"aiosctl status {best['own'] * 1000:.0f} ms, import {best['library'] * 1000:.0f} ms, ratio {ratio:.2f}")
    assert ratio <= 1.5
