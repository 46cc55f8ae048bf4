"""A disk of a box's own whose device fails when it is told to: writes and fsync(2) give EIO, as a dying disk's do.

A file system on a loop device on a sparse file on a small tmpfs. When that is full, a block that was never written
cannot be, and the device answers with an error; when there is room again, it works. No module, no preloaded library and
nothing in the box's kernel is needed for it. The kernel's own reaction to worse, a file system that turns read-only
while it is in use, is provoked where ext4 lets it be (`/sys/fs/ext4/…/trigger_fs_error`).
"""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from aiosd.run import syscalls
from tests.rig import host

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM = 24 << 20
"""Bytes that the tmpfs holds, before it fails."""
SIZE = 200 << 20
"""Bytes that the file system believes to have."""
FILL = "fill"


@dataclass(frozen=True)
class FailingDisk:
    """A mounted one. `device`: the loop device's name."""

    device: str
    room: int

    def fail(self) -> None:
        """From now on no block that is new to the device can be written."""
        with os.fdopen(os.open(FILL, os.O_WRONLY | os.O_CREAT, dir_fd=self.room), "wb", buffering=0) as fill:
            try:
                while fill.write(bytes(4096)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def heal(self) -> None:
        """It works again; what it failed to write is not there."""
        os.unlink(FILL, dir_fd=self.room)

    def turn_read_only(self) -> None:
        """The kernel finds an error in the file system and lets nobody write any more."""
        Path(f"/sys/fs/ext4/{self.device}/trigger_fs_error").write_text("1", encoding="utf-8")


@contextmanager
def failing(leader: int, target: str) -> Iterator[FailingDisk]:
    """Attach one at `target` in the namespace of the box with that init. Raises host.Unavailable.

    Whoever mounts it elsewhere in the box unmounts it there.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, TemporaryDirectory(prefix="aiosd-disk-") as place:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _make(Path(place), leader, target, theirs)
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        data, fds, _, _ = socket.recv_fds(ours, 4096, 1)
        if status or not fds:
            raise host.Unavailable("no file system could be put into the box: loop devices are needed")
        try:
            yield FailingDisk(json.loads(data)["device"], fds[0])
        finally:
            os.close(fds[0])


def _make(place: Path, leader: int, target: str, to_parent: socket.socket) -> None:
    """In a process and a mount namespace of its own, so that this machine never sees it."""
    namespace = os.open(f"/proc/{leader}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("tmpfs", str(place), "tmpfs", 0, f"size={ROOM}")
    image, mounted = place / "image", place / "mounted"
    with image.open("wb") as file:
        file.truncate(SIZE)
    mounted.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(mounted)], check=True)
    losetup = ["losetup", "--noheadings", "--output=NAME", f"--associated={image}"]
    device = subprocess.run(losetup, check=True, capture_output=True, text=True)
    told = json.dumps({"device": Path(device.stdout.strip()).name}).encode()
    room = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    tree = syscalls.clone_tree(str(mounted))
    syscalls.join_namespace(namespace, syscalls.CLONE_NEWNS)
    Path(target).mkdir(parents=True, exist_ok=True)
    syscalls.attach_tree(tree, target)
    socket.send_fds(to_parent, [told], [room])
