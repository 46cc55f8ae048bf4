"""The command itself: that it measures everything there is, on a tiny scale. No figure is judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiosd.manifest.parse import parse_manifest
from tests import prerequisites
from tests.bench.figures import Figure, Spread, as_markdown
from tests.bench.floor import LIMITS
from tests.rig import host

CAPABILITIES = Path(__file__).parent / "capabilities.d"
ROWS = (
    "durable reply",
    "first instruction",
    "no-op tasks a second",
    "wake-ups",
    "live task",
    "first page",
    "ready",
    "silence of a streaming client",
    "task.get",
    "aios/task.list",
    "after its commit",
    "clients, in all",
    "finished tasks in the session",
    "heartbeats a second",
)


def test_a_ratio_is_of_the_medians() -> None:
    figure = Figure("x", "ms", Spread.of([1, 9, 2]), Spread.of([0.5, 4, 1]))
    assert figure.ratio == 2
    assert as_markdown([figure]).splitlines()[2] == "| x | 2.00 (1.00-9.00) ms | 1.00 (0.50-4.00) ms | 2.00 |  |"


@pytest.mark.parametrize("manifest", sorted(CAPABILITIES.glob("*.toml")), ids=lambda path: path.stem)
def test_its_capabilities_have_the_limits_of_the_floor(manifest: Path) -> None:
    parsed = parse_manifest(manifest.read_bytes(), str(manifest))
    assert not parsed.problems
    assert parsed.capability is not None
    limits = parsed.capability.limits
    assert (limits.memory_max, limits.cpu_quota_percent) == (LIMITS.memory_max, LIMITS.cpu_quota_percent)


def test_it_measures_and_writes(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    argv = [sys.executable, "-m", "tests.bench", "--quick", "--write", str(document)]
    done = subprocess.run(argv, cwd=host.CHECKOUT, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode == 69:
        prerequisites.missing(done.stderr)
    assert done.returncode == 0, done.stderr
    table = document.read_text()
    assert all(row in table for row in ROWS)
