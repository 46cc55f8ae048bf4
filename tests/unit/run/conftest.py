from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.run.shimrig import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Needs root, as the launcher does. Outside /tmp, because a run may have a /tmp of its own."""
    if os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("these tests need root, and CI has to give it to them")
        pytest.skip("needs root")
    state = Path(tempfile.mkdtemp(prefix="aiosd-test-", dir="/var/lib"))
    made = Rig(state)
    yield made
    made.close()
