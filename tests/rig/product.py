"""Put the product of this checkout into a box, the way its package does: the same files, the same steps afterwards."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rig import host
from tests.rig.commands import CommandFailed

if TYPE_CHECKING:
    from tests.rig.commands import Box


def stage(directory: Path) -> Path:
    """Lay the product out below `directory` on the host; returns it."""
    installer = host.CHECKOUT / "packaging/install"
    subprocess.run([sys.executable, str(installer), "--root", str(directory)], check=True)
    return directory


def deploy(box: Box, *, start: bool = True) -> None:
    """Install this checkout into the box and, with `start`, wait until the daemon says that it is ready.

    May be repeated, as an upgrade. Raises `CommandFailed` with the journal when the daemon does not
    come up.
    """
    with tempfile.TemporaryDirectory(prefix="aiosd-stage-") as scratch:
        archive = subprocess.run(
            ["tar", "-C", str(stage(Path(scratch) / "root")), "--owner=0", "--group=0", "-c", "."],
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    box.run("tar", "-C", "/", "--no-overwrite-dir", "--keep-directory-symlink", "-x", input=archive)
    activate = (host.CHECKOUT / "packaging/activate").read_text()
    arguments = [] if start else ["--no-start"]
    done = box.run("sh", "-s", "--", *arguments, input=activate, check=False, timeout=180)
    if done.returncode != 0:
        journal = box.sh("journalctl --no-pager --lines=40 -u aiosd -u aios-launcher", check=False)
        raise CommandFailed(
            done.returncode, "packaging/activate", done.stdout, f"{done.stderr}\n--- journal\n{journal}"
        )
