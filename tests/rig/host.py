"""What the rig needs of the machine it runs on: privileges, tools, a cache, a place in the cgroup tree."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHECKOUT = Path(__file__).resolve().parents[2]

#: program -> Debian package that brings it
TOOLS: Mapping[str, str] = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
#: what only the user-mode-linux box needs on top
MACHINE_TOOLS: Mapping[str, str] = {"mke2fs": "e2fsprogs", "gcc": "gcc", "unshare": "util-linux"}


class Unavailable(RuntimeError):
    """This machine cannot give what was asked of it; the text says what is missing."""


def cache_directory() -> Path:
    """Where root file systems and packages are kept between runs: AIOSD_RIG_CACHE, else in the machine's cache."""
    chosen = os.environ.get("AIOSD_RIG_CACHE")
    directory = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "aiosd-rig"
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve()


def require_root() -> None:
    """Raise `Unavailable` unless we may make containers."""
    if os.geteuid() != 0:
        raise Unavailable("booting a container needs root")


def require(tools: Mapping[str, str]) -> None:
    """Install what is missing with apt; raise `Unavailable` where that cannot be done."""
    missing = {package for program, package in tools.items() if shutil.which(program) is None}
    if "gcc" in missing:
        missing.add("libc6-dev")
    if not missing:
        return
    require_root()
    names = " ".join(sorted(missing))
    if shutil.which("apt-get") is None:
        raise Unavailable(f"missing programs; install the equivalent of Debian's {names}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update", "-q"], ["install", "-qy", "--no-install-recommends", *sorted(missing)]):
        done = subprocess.run(["apt-get", *step], capture_output=True, text=True, env=environment, check=False)
        if done.returncode != 0:
            raise Unavailable(f"apt-get could not install {names}: {done.stderr.strip()[-500:]}")


def state_directory() -> Path:
    """One subdirectory for each box that is up."""
    directory = Path("/run/aiosd-rig")
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`, so that two test runs build a thing once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cgroup_hierarchies() -> list[Path]:
    """Mount points of cgroup v2 and, on a host that still has it, of systemd's named v1 hierarchy.

    Both are needed on a hybrid host: nspawn looks for its own cgroup in each. See cgroups(7).
    """
    unified, named = [], []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount_point = Path(before.split()[4])
        kind, _, options = after.split(maxsplit=2)
        if kind == "cgroup2":
            unified.append(mount_point)
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            named.append(mount_point)
    if not unified:
        raise Unavailable("no cgroup v2 hierarchy is mounted on this machine")
    return [unified[0], *named[:1]]
