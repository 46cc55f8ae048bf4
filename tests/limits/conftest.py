"""The box of these tests: a user-mode-linux kernel, because the host's may keep its controllers on cgroup v1."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.rig import host, product, uml

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def bare_machine() -> Iterator[uml.Machine]:
    """A machine without the product."""
    uml.reap()
    try:
        booted = uml.Machine.boot(f"test-{os.getpid()}", owned=True)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    try:
        yield booted
    finally:
        booted.stop()


@pytest.fixture(scope="session")
def machine(bare_machine: uml.Machine) -> uml.Machine:
    """A machine with the product of this checkout installed and aiosd ready."""
    product.deploy(bare_machine)
    return bare_machine
