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


@pytest.fixture(scope="module")
def said() -> dict[str, tuple[int, str]]:
    """Of each target the exit status and what libFuzzer said. All at once: importing takes longer than the search."""
    if importlib.util.find_spec("atheris") is None:
        prerequisites.missing("atheris is not installed (it has no release for this Python or machine)")
    names = sorted(TARGETS)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *names, "--seconds", str(SECONDS)],
        cwd=host.CHECKOUT, capture_output=True, text=True, timeout=(SECONDS + 200) * len(names), check=False,
    )  # fmt: skip
    found = re.findall(r"^== fuzzing (\w+)$(.*?)^== exit status (-?\d+)$", done.stderr, re.MULTILINE | re.DOTALL)
    assert [name for name, _, _ in found] == names, done.stdout[-2000:] + done.stderr[-4000:]
    return {name: (int(status), text) for name, text, status in found}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_nothing_breaks(said: dict[str, tuple[int, str]], target: str) -> None:
    status, text = said[target]
    assert status == 0, text[-4000:]
    tried = re.search(r"number_of_executed_units: (\d+)", text)
    guided = re.findall(r"cov: (\d+)", text)
    assert tried is not None
    assert int(tried[1]) > 20
    assert int(guided[-1]) > 20, "coverage guides the search"
