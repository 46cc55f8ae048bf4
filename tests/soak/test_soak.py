"""Two minutes of the soak; thirty by `python3 -m tests.soak`."""

from __future__ import annotations

import os
import time

from tests import prerequisites
from tests.rig import host
from tests.soak.__main__ import soak

MINUTES = float(os.environ.get("AIOSD_SOAK_MINUTES", "2"))


def test_nothing_is_lost_and_nothing_grows() -> None:
    seed = int(time.time())
    try:
        figures = soak(MINUTES, seed)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    print(f"seed {seed}: {figures}")
    assert not figures.problems, f"seed {seed}: " + "\n".join(figures.problems)
    assert figures.promised
