"""What a test needs of the machine: where it is missing, the test is skipped with the reason, but in CI it fails.

A skipped proof is no proof: CI=true says that this machine is there to run all of them.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """End the test because the machine lacks something: failed with CI=true, else skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"missing in CI: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def require_program(name: str) -> str:
    """Path of a program that the test runs."""
    found = shutil.which(name)
    if found is None:
        missing(f"no program {name} here")
    return found
