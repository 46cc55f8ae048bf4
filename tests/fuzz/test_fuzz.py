"""Each target for a few seconds: nothing breaks, hangs or grows. Longer by hand: `python3 -m tests.fuzz`."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from tests import prerequisites
from tests.fuzz.targets import TARGETS
from tests.rig import host

SECONDS = int(os.environ.get("AIOSD_FUZZ_SECONDS", "4"))


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_nothing_breaks(target: str) -> None:
    if importlib.util.find_spec("atheris") is None:
        prerequisites.missing("atheris is not installed (it has no release for this Python or machine)")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", target, "--seconds", str(SECONDS)],
        cwd=host.CHECKOUT, capture_output=True, text=True, timeout=SECONDS + 300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    tried = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    guided = re.findall(r"cov: (\d+)", done.stderr)
    assert tried is not None
    assert int(tried[1]) > 20
    assert int(guided[-1]) > 20, "coverage guides the search"
