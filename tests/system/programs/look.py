"""Tells, as its result, what it is given, what it sees, and what happens when it tries what it should not."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.worker.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.worker.task import Json


def attempt(what: Callable[[], object]) -> str:
    """What came of it: "done", or the error's name."""
    try:
        what()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


def descriptors() -> dict[str, Json]:
    """Number of each open descriptor -> what it is."""
    found: dict[str, Json] = {}
    for entry in sorted(os.listdir("/proc/self/fd"), key=int):  # noqa: PTH208 - as few descriptors of its own as can be
        try:
            found[entry] = str(Path(f"/proc/self/fd/{entry}").readlink())
        except FileNotFoundError:
            continue  # the one of this very listing
    return found


def status() -> dict[str, Json]:
    """/proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def listing(path: str) -> list[Json]:
    """Names in a directory; the error's name when it cannot be read."""
    try:
        return [str(entry) for entry in sorted(os.listdir(path))]  # noqa: PTH208
    except OSError as error:
        return [errno.errorcode[error.errno or 0]]


def write(path: str) -> str:
    """Try to make a file."""
    return attempt(lambda: Path(path).write_text("written by a task"))


def connect(family: socket.AddressFamily, kind: socket.SocketKind, address: object) -> str:
    """Try to connect a socket."""

    def reach() -> None:
        with socket.socket(family, kind) as sock:
            sock.settimeout(2)
            sock.connect(address)  # type: ignore[arg-type]  # of whatever kind the family takes

    return attempt(reach)


def interfaces() -> list[Json]:
    """Names of the network interfaces."""
    return [name for _, name in socket.if_nameindex()]


def aiosd_pid() -> int:
    """Whose process that is; 0 when it cannot be seen."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"/usr/libexec/aios/aiosd" in (entry / "cmdline").read_bytes():
                    return int(entry.name)
            except OSError:
                continue
    return 0


def networking() -> dict[str, Json]:
    """What can be reached."""
    inet, stream = socket.AF_INET, socket.SOCK_STREAM
    return {
        "interfaces": interfaces(),
        "tcp": connect(inet, stream, ("192.0.2.1", 80)),
        "tcp_loopback": connect(inet, stream, ("127.0.0.1", 1)),
        "udp": connect(inet, socket.SOCK_DGRAM, ("192.0.2.1", 53)),
        "tcp6": connect(socket.AF_INET6, stream, ("2001:db8::1", 80)),
        "abstract": connect(socket.AF_UNIX, stream, "\0aiosd-test"),
        "packet": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()),
    }


def files(pid: int) -> dict[str, Json]:
    """What can be read, written and signalled."""
    home = os.environ["HOME"]
    return {
        "write_usr": write("/usr/written"),
        "write_etc": write("/etc/written"),
        "write_var": write("/var/tmp/written"),
        "write_tmp": write("/tmp/written"),
        "write_scratch": write("written"),
        "write_home": write(f"{home}/written"),
        "homes": listing("/home"),
        "root_home": listing("/root"),
        "run_user": listing("/run/user"),
        "aiosd_state": listing("/var/lib/aiosd"),
        "runs": listing("/var/lib/aios-launcher/runs"),
        "signal_aiosd": attempt(lambda: os.kill(pid, 0)) if pid else "no such process",
        "launcher_socket": connect(socket.AF_UNIX, socket.SOCK_SEQPACKET, "/run/aios/launcher.sock"),
        "system_bus": connect(socket.AF_UNIX, socket.SOCK_STREAM, "/run/dbus/system_bus_socket"),
        "shadow": attempt(lambda: Path("/etc/shadow").read_bytes()),
    }


with Task.connect() as task:
    zero = os.fstat(0)
    task.complete({
        "environment": dict(os.environ),
        "descriptors": descriptors(),
        "stdin_is_null": stat.S_ISCHR(zero.st_mode) and zero.st_rdev == os.makedev(1, 3),
        "status": status(),
        "cwd": str(Path.cwd()),
        "scratch": listing("."),
        "cgroup": Path("/proc/self/cgroup").read_text(),
        "aiosd_pid": aiosd_pid(),
        "network": networking(),
        "files": files(aiosd_pid()),
    })  # fmt: skip
