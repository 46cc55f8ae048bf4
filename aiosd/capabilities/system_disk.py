"""`system.disk.usage`: how full the machine's mounted file systems are, from mountinfo of process 1 and statvfs(3).

A task has a mount namespace of its own, where private directories lie over `/home`, `/tmp` and others. So the list is
process 1's, and a file system is asked only where this task's view still shows it: `_seen_at` says which one a path
leads to here. Each is told once, at its shortest mount point; what is not told is named with its reason. Remote ones
are not asked: a server that is gone would hold the task, in a state that not even SIGKILL ends.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.capabilities.program import serve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.worker import Task

_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "afs", "ncpfs", "glusterfs", "autofs"})
_ESCAPE = re.compile(r"\\([0-7]{3})")
MAX_FILE_SYSTEMS = 256


class Skipped(Enum):
    """Why a file system is named and not told."""

    REMOTE = "remote"
    HIDDEN = "hidden"  # from this task: something of its own lies over it
    UNREACHABLE = "unreachable"  # for this task's user


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: mount id and device number as texts, mount point, file system type, source."""

    id: str
    device: str
    mount_point: str
    type: str
    source: str

    @property
    def is_remote(self) -> bool:
        """Whether asking about it may wait for another machine (or for a program of somebody: FUSE)."""
        return self.type in _REMOTE or self.type.startswith("fuse")


def work(task: Task) -> JsonObject:
    """Every local file system that has blocks at all and can be seen, and the names of the others."""
    own = _mountinfo("self")
    devices = {mount.id: mount.device for mount in own}
    found: list[JsonValue] = []
    skipped: list[JsonValue] = []
    for same in file_systems(_mountinfo("1") or own):
        told = _told(same, devices)
        if isinstance(told, Skipped):
            name: JsonObject = {"mount_point": _shown(same[0].mount_point), "type": same[0].type, "reason": told.value}
            skipped.append(name)
        elif told is not None:
            found.append(told)
    task.progress(100, f"{len(found)} file systems")
    return {"filesystems": found[:MAX_FILE_SYSTEMS], "skipped": skipped[:MAX_FILE_SYSTEMS]}


def _mountinfo(pid: str) -> Sequence[Mount]:
    """The mounts that a process has; none when /proc does not show it."""
    try:
        return list(mounts(Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")))
    except OSError:
        return []


def _told(same: Sequence[Mount], devices: dict[str, str]) -> JsonObject | Skipped | None:
    """One file system's usage at the first of its mount points that leads to it; None when it has no blocks."""
    if same[0].is_remote:
        return Skipped.REMOTE
    reason = Skipped.HIDDEN
    for mount in same:
        try:
            if _seen_at(mount.mount_point, devices) == mount.device:
                return _usage(mount)
        except OSError:
            reason = Skipped.UNREACHABLE
    return reason


def _seen_at(path: str, devices: dict[str, str]) -> str | None:
    """The device of the mount that a path leads to in this task's view (proc_pid_fdinfo(5), `mnt_id`).

    stat(2) would not do: its device number is not the mount's on btrfs. Raises OSError when there is no way there.
    """
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        information = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    finally:
        os.close(descriptor)
    return devices.get(dict(line.split(":\t", 1) for line in information.splitlines())["mnt_id"])


def mounts(mountinfo: str) -> Iterator[Mount]:
    """The lines of proc_pid_mountinfo(5); optional fields end at a lone dash."""
    for line in mountinfo.splitlines():
        head, dash, tail = line.partition(" - ")
        fields, rest = head.split(" "), tail.split(" ")
        if dash and len(fields) >= 6 and len(rest) >= 2:
            yield Mount(fields[0], fields[2], _unescape(fields[4]), rest[0], _unescape(rest[1]))


def file_systems(found: Iterable[Mount]) -> list[list[Mount]]:
    """The mounts of each device, shortest path first; the devices by that path."""
    by_device: defaultdict[str, list[Mount]] = defaultdict(list)
    for mount in found:
        by_device[mount.device].append(mount)
    grouped = [sorted(same, key=lambda mount: len(mount.mount_point)) for same in by_device.values()]
    return sorted(grouped, key=lambda same: same[0].mount_point)


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
