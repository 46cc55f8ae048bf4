"""`system.disk.usage`: how full the mounted file systems are, from /proc/self/mountinfo and statvfs(3).

Each file system is told once, at its shortest mount point. Remote ones are named and not asked: a server that is gone
would hold the task, in a state that not even SIGKILL ends.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.capabilities.program import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.worker import Task

_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "afs", "ncpfs", "glusterfs", "autofs"})
_ESCAPE = re.compile(r"\\([0-7]{3})")
MAX_FILE_SYSTEMS = 256


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: device number as text, mount point, file system type, source."""

    device: str
    mount_point: str
    type: str
    source: str

    @property
    def is_remote(self) -> bool:
        """Whether asking about it may wait for another machine (or for a program of somebody: FUSE)."""
        return self.type in _REMOTE or self.type.startswith("fuse")


def work(task: Task) -> JsonObject:
    """Every local file system that has blocks at all, and the names of the remote ones."""
    found: list[JsonValue] = []
    skipped: list[JsonValue] = []
    for mount in distinct(mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))):
        if mount.is_remote:
            skipped.append({"mount_point": _shown(mount.mount_point), "type": mount.type})
            continue
        try:
            usage = _usage(mount)
        except OSError:
            skipped.append({"mount_point": _shown(mount.mount_point), "type": mount.type})
            continue
        if usage is not None:
            found.append(usage)
    task.progress(100, f"{len(found)} file systems")
    return {"filesystems": found[:MAX_FILE_SYSTEMS], "skipped": skipped[:MAX_FILE_SYSTEMS]}


def mounts(mountinfo: str) -> Iterator[Mount]:
    """The lines of proc_pid_mountinfo(5); optional fields end at a lone dash."""
    for line in mountinfo.splitlines():
        head, dash, tail = line.partition(" - ")
        fields, rest = head.split(" "), tail.split(" ")
        if dash and len(fields) >= 6 and len(rest) >= 2:
            yield Mount(fields[2], _unescape(fields[4]), rest[0], _unescape(rest[1]))


def distinct(found: Iterator[Mount]) -> list[Mount]:
    """One mount a device: the one with the shortest path. Sorted by path."""
    chosen: dict[str, Mount] = {}
    for mount in found:
        known = chosen.get(mount.device)
        if known is None or len(mount.mount_point) < len(known.mount_point):
            chosen[mount.device] = mount
    return sorted(chosen.values(), key=lambda mount: mount.mount_point)


def _usage(mount: Mount) -> JsonObject | None:
    info = os.statvfs(mount.mount_point)
    if info.f_blocks == 0:
        return None
    used = info.f_blocks - info.f_bfree
    reachable = used + info.f_bavail
    return {
        "mount_point": _shown(mount.mount_point),
        "source": _shown(mount.source),
        "type": mount.type,
        "size_bytes": info.f_blocks * info.f_frsize,
        "used_bytes": used * info.f_frsize,
        "available_bytes": info.f_bavail * info.f_frsize,
        # As df(1) has it: of what a user could reach, rounded up.
        "used_percent": -(-used * 100 // reachable) if reachable else 100,
        "inodes": info.f_files,
        "inodes_used": info.f_files - info.f_ffree,
    }


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def _shown(text: str) -> str:
    """A path as JSON can carry it."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def main() -> None:
    """Run as a task."""
    serve(work)


if __name__ == "__main__":
    main()
