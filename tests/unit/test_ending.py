"""The daemon's last resort: whatever ends it ends it, so that the service manager can start it again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.rig import host

WAYS = {
    "the loop": "raise MemoryError('of the loop')",
    "a thread": "threading.Thread(target=dies).start(); threading.Event().wait()",
}
PROGRAM = """
import threading
from aiosd import app

def dies():
    raise MemoryError('of a thread')

def serve(options):
    threading.Thread(target=threading.Event().wait).start()  # as the store's threads would
    {way}

app._serve = serve
app.main()
"""


@pytest.mark.parametrize("way", WAYS)
def test_an_error_that_nobody_expected_ends_it_though_threads_wait(way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(way=WAYS[way])], cwd=host.CHECKOUT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"MemoryError: of {way}" in done.stderr
