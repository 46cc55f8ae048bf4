"""The unit, bus and HTTP tests hold on what Debian 13 ships too: its Python and its versions of every library.

The run that this test is part of uses the newest releases; the product's package uses Debian's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.rig import host
from tests.rig.container import Container

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds for all of them.
TIMEOUT = 900


@pytest.fixture
def debian() -> Iterator[Container]:
    try:
        booted = Container.boot(f"debian-{os.getpid()}", bind={host.CHECKOUT: "/src"}, owned=True)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    yield booted
    booted.stop()


def test_on_debians_versions(debian: Container) -> None:
    environment = {"PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis"}
    command = (
        "cd /src && exec python3 -m pytest -q -n 2 --dist loadfile --tb=short -m 'not quality'"
        # Dying at every commit depends on our code, not on the versions, and takes minutes.
        " --ignore=tests/unit/reliability tests/unit tests/bus"
        # The door whose library differs most between the two, without what is large.
        " tests/rpc/test_http.py tests/rpc/test_lines.py tests/rpc/test_streams.py tests/rpc/test_kept.py"
        " tests/rpc/test_floods.py"
    )
    done = debian.run("sh", "-c", command, env=environment, check=False, timeout=TIMEOUT)
    shown = "\n".join(line[:200] for line in done.stdout.splitlines()[-150:])
    assert done.returncode == 0, shown
