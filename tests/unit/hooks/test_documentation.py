"""The receiver of docs/webhooks.md, as it stands there: it takes what is genuine, once, and nothing else."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.model.webhook import WebhookState
from tests.unit.hooks.receiver import TASK, TOKEN, outbox

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[3] / "docs/webhooks.md"


@contextmanager
def documented(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The page's program, running; its port."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    program = tmp_path / "receiver.py"
    program.write_text(found[1])
    environment = {**os.environ, "AIOS_WEBHOOK_TOKEN": TOKEN}
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stdout is not None
            yield int(running.stdout.readline().split()[-1]), running
        finally:
            running.terminate()


def test_the_documented_receiver_takes_our_deliveries(tmp_path: Path) -> None:
    with documented(tmp_path) as (port, running):

        async def scenario() -> None:
            async with outbox(tmp_path) as box, box.delivering():
                await box.task()
                hook = await box.hook(f"http://127.0.0.1:{port}/")
                await box.event(7)
                await box.until(hook, lambda one: one.delivered == 1)

        asyncio.run(scenario())
        assert running.stdout is not None
        assert running.stdout.readline() == f"{TASK} task.progress {{'number': 7}}\n"


def test_the_documented_receiver_refuses_another_token(tmp_path: Path) -> None:
    with documented(tmp_path) as (port, _):

        async def scenario() -> None:
            async with outbox(tmp_path) as box, box.delivering():
                await box.task()
                hook = await box.hook(f"http://127.0.0.1:{port}/", sealed='{"type":"bearer","token":"guessed"}')
                await box.event(7)
                parked = await box.until(hook, lambda one: one.state is WebhookState.PARKED)
                assert parked.last_error == "the receiver answered 403"

        asyncio.run(scenario())
        request = urllib.request.Request(f"http://127.0.0.1:{port}/", b"{}", {"X-AIOS-Signature": "sha256=00"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request)  # noqa: S310 - our own
