"""The box that is measured: the product with room for the benchmark, and its state on a real disk.

A box writes to memory, where a commit costs nothing. So the directories whose writes must last are put on the host's
disk: a file system in a file, of which detached mounts are made outside and attached inside (open_tree(2),
move_mount(2)).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.run import syscalls
from tests.rig import container, host, product

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.inside import Samples

SOURCES = "/src"
DISK = Path("/var/tmp")
DURABLE = ("/var/lib/aiosd", "/var/lib/aios-launcher", "/var/lib/bench")
HERE = f"{SOURCES}/tests/bench"
SECONDS = 900
IMAGE_SIZE = 2 << 30


class Bench:
    """A box that is ready to be measured."""

    def __init__(self, box: container.Container) -> None:
        """Use `prepared`."""
        self.box = box

    def inside(self, measure: str, *, count: int, rounds: int = 1) -> Samples:
        """One measure of `inside`."""
        argv = ["python3", "-m", "tests.bench.inside", measure, f"--count={count}", f"--rounds={rounds}"]
        done = self.box.run("env", f"--chdir={SOURCES}", *argv, timeout=SECONDS)
        found: Samples = json.loads(done.stdout)
        return found

    def idle(self, seconds: float) -> dict[str, dict[str, float]]:
        """What both services cost while nothing happens, by service."""
        argv = ["python3", "-m", "tests.bench.idle", str(seconds)]
        found: dict[str, dict[str, float]] = json.loads(
            self.box.run("env", f"--chdir={SOURCES}", *argv, timeout=SECONDS).stdout
        )
        return found

    def restart_with(self, finished: int) -> float:
        """The daemon anew on a database with that many finished tasks and no others; milliseconds until it was ready.

        From the start of its process to the end of the unit's start job, as systemd has noted them.
        """
        self.box.run("systemctl", "stop", "aiosd.service")
        self.box.sh("rm -f /var/lib/aiosd/aiosd.db*")
        argv = ["python3", "-m", "tests.bench.seed", str(finished)]
        self.box.run("env", f"--chdir={SOURCES}", *argv, user="aiosd", timeout=SECONDS)
        return self.restart()

    def restart(self) -> float:
        """As `restart_with`, on the database that is there."""
        self.box.run("systemctl", "restart", "aiosd.service")
        names = ("ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
        begin, end = (
            int(self.box.run("systemctl", "show", "aiosd.service", f"--property={name}", "--value").stdout)
            for name in names
        )
        return (end - begin) / 1000


def _put_on_disk(leader: int, directory: Path) -> None:
    """Make directories of a new file system on this machine's disk appear in the namespace of `leader`.

    A new one, because how long a file takes to be made in an old one depends on what else has been deleted there.
    """
    image, place = directory / "image", directory / "mounted"
    with image.open("wb") as file:
        file.truncate(IMAGE_SIZE)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    place.mkdir()
    namespace = os.open(f"/proc/{leader}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _mount_and_attach(image, place, namespace)
            status = 0
        finally:
            os._exit(status)
    os.close(namespace)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise host.Unavailable("no file system could be put into the box: loop devices are needed")


def _mount_and_attach(image: Path, place: Path, namespace: int) -> None:
    """In a process of its own: mounted in a private namespace, so that this machine never sees it."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    trees = []
    for number, _ in enumerate(DURABLE):
        (place / str(number)).mkdir(mode=0o755)
        trees.append(syscalls.clone_tree(str(place / str(number))))
    syscalls.join_namespace(namespace, syscalls.CLONE_NEWNS)
    for tree, target in zip(trees, DURABLE, strict=True):
        Path(target).mkdir(parents=True, exist_ok=True)
        syscalls.attach_tree(tree, target)


@contextmanager
def prepared(name: str, bus: container.Bus) -> Iterator[Bench]:
    """Boot, install, measure, and take everything away again. Raises host.Unavailable."""
    with tempfile.TemporaryDirectory(prefix="aiosd-bench-", dir=DISK) as disk:
        box = container.Container.boot(name, bind={host.CHECKOUT: SOURCES}, bus=bus, owned=True)
        try:
            _put_on_disk(box.leader.pid, Path(disk))
            box.sh(
                "mkdir -p /etc/aios/capabilities.d /etc/dbus-1/system.d /srv/bench"
                f" && install -m 644 {HERE}/capabilities.d/*.toml /etc/aios/capabilities.d"
                f" && install -m 644 {HERE}/aiosd.conf /etc/aios/aiosd.conf"
                f" && install -m 644 {HERE}/policy.conf /etc/dbus-1/system.d/org.aios.Bench.conf"
                " && busctl call org.freedesktop.DBus / org.freedesktop.DBus ReloadConfig"
            )
            product.deploy(box)
            yield Bench(box)
        finally:
            box.stop()
