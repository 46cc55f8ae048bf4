"""A program that tries to get out: its result is a table of what it tried and what came of it.

`refused: WHY`, or `got: WHAT`. Every attempt runs in a child of its own, so one that is killed for it is told, too.
What it needs to know of the outside stands in its arguments.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.worker.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.worker.task import Json

LIBC = ctypes.CDLL(None, use_errno=True)
TOOK = "got"
CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID = 0x10000000, 0x20000, 0x40000000, 0x20000000
PTRACE_ATTACH = 16
PATIENCE = 20.0
"""Seconds for one attempt."""

PIPE: list[int] = []
"""Through which an attempt tells; ours, not the task's."""

SERVICE, SESSION = "/run/aiosd-escape.sock", "/run/screen/S-alice/1.test"

# x86-64's numbers and the generic table's (arm64, riscv64)
NUMBERS = {
    "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "init_module": (175, 105), "kexec_load": (246, 104), "open_tree": (428, 428),
    "fsopen": (430, 430), "process_vm_readv": (310, 270), "pidfd_getfd": (438, 438), "ptrace": (101, 117),
    "syslog": (103, 116), "add_key": (248, 217),
}  # fmt: skip


def number(name: str) -> int:
    """The number of that system call here."""
    return NUMBERS[name][0 if platform.machine() == "x86_64" else 1]


def call(function: str, *arguments: int | bytes | None) -> str:
    """Call a function of the C library; raises OSError when it says -1."""
    ctypes.set_errno(0)
    result = getattr(LIBC, function)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return str(result)


def system_call(name: str, *arguments: int | bytes | None) -> str:
    """A system call by its number."""
    return call("syscall", number(name), *arguments)


def read(path: str) -> str:
    """The first bytes of a file."""
    with Path(path).open("rb") as file:
        return repr(file.read(24))


def write(path: str) -> str:
    """Make a file."""
    Path(path).write_text("a task was here")
    return path


def names(path: str) -> str:
    """What is in a directory; nothing to be seen counts as refused."""
    own = Path(os.environ.get("AIOS_SCRATCH", "")).name
    found = sorted(name for name in os.listdir(path) if name != own)  # noqa: PTH208
    if not found:
        raise OSError(errno.ENOENT, "it is empty")
    return " ".join(found[:3])


def connect(address: str | tuple[str, int]) -> str:
    """Connect a socket."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(family, kind) as sock:
            sock.settimeout(3)
            try:
                sock.connect(address)
            except OSError as error:
                if error.errno != errno.EPROTOTYPE:
                    raise
            else:
                return f"connected to {address}".replace("\0", "@")
    raise OSError(errno.EPROTOTYPE, "no kind of socket fits")


def run(*argv: str) -> str:
    """Run a program; fails when it does."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE / 2)
    if done.returncode != 0:
        raise OSError(errno.EPERM, (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:120])
    return done.stdout.strip()[:60]


def setuid_program(path: str) -> str:
    """A set-uid root copy of id(1)."""
    uid = run(path, "-u")
    if uid != "0" or os.getuid() == 0:
        raise OSError(errno.EPERM, f"it ran as uid {uid}")
    return "ran as root"


def descriptors() -> str:
    """Descriptors beyond the four that a task has; the listing's own is the last."""
    own = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]  # noqa: PTH208
    more = [fd for fd in own if fd > 3 and fd not in PIPE]
    if not more:
        raise OSError(errno.ENOENT, "there are four")
    return str([str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in more])


def devices() -> str:
    """Devices that can be opened, beyond those that hold nothing."""
    harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}
    found = []
    for directory, folders, files in os.walk("/dev"):
        folders[:] = [name for name in folders if name not in ("pts", "shm", "fd")]
        for name in files:
            path = Path(directory) / name
            if name in harmless or path.is_symlink() or not (path.is_char_device() or path.is_block_device()):
                continue
            try:
                os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
            except OSError:
                continue
            found.append(str(path))
    if not found:
        raise OSError(errno.EACCES, "none can be opened")
    return " ".join(sorted(found)[:4])


def fill(path: str) -> str:
    """Write until it is full; 64 MiB is more than this capability may."""
    done = 0
    with Path(path).open("wb") as file:
        while done < 64 << 20:
            done += file.write(b"x" * (1 << 20))
            file.flush()
    return f"{done >> 20} MiB"


def enter_cgroup(path: str) -> str:
    """Move to another control group."""
    Path(path).write_text(str(os.getpid()))
    return path


def leave_behind(marker: str) -> str:
    """A daemon of the old school: two forks, a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            os.closerange(3, 1000)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execv("/usr/bin/sleep", [marker, "600"])  # noqa: S606  not a shell's
        os._exit(0)
    time.sleep(0.3)
    return "left a process behind"


def signal_process(pid: int) -> str:
    """A signal that hurts nobody, with the same permission as all others."""
    os.kill(pid, signal.SIGCONT)
    return f"signalled {pid}"


def attach(pid: int) -> str:
    """Begin to trace, and let go."""
    system_call("ptrace", PTRACE_ATTACH, pid, None, None)
    os.kill(pid, signal.SIGCONT)
    return f"attached to {pid}"


def limit(pid: int) -> str:
    """A limit that does not hurt, with the same permission as RLIMIT_CPU, which kills."""
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, resource.prlimit(pid, resource.RLIMIT_CORE)[1]))
    return f"limited {pid}"


def demote(pid: int) -> str:
    """A lower priority, for good."""
    os.setpriority(os.PRIO_PROCESS, pid, min(19, os.getpriority(os.PRIO_PROCESS, pid) + 1))
    return f"demoted {pid}"


def terminal(path: str) -> str:
    """Open a terminal, to read what is typed there."""
    os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
    return path


def new_user_namespace() -> str:
    """Be root in a user namespace, and use it to mount."""
    call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
    return "root in a namespace of its own"


def foreign_table() -> str:
    """getpid of x86's other table of system calls."""
    if platform.machine() != "x86_64":
        raise OSError(errno.ENOSYS, "no such table here")
    child = os.fork()
    if child == 0:
        try:
            call("syscall", 0x40000000 + 39)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise OSError(errno.EPERM if status < 0 else status, "killed" if status < 0 else "refused")
    return "called"


def attempts(given: dict[str, Json]) -> dict[str, Callable[[], str]]:
    """Everything that is tried, by name."""

    def pid(name: str) -> int:
        return int(str(given[name]))

    uid = os.getuid()
    neighbour, shim = pid("neighbour"), os.getppid()
    found: dict[str, Callable[[], str]] = {
        "read /etc/shadow": lambda: read("/etc/shadow"),
        "read another user's home": lambda: read("/home/bob/private"),
        "read the caller's home": lambda: read("/home/alice/kept"),
        "write into the caller's home": lambda: write("/home/alice/escaped"),
        "write into /usr": lambda: write("/usr/escaped"),
        "write into /etc": lambda: write("/etc/escaped"),
        "write into /var/lib": lambda: write("/var/lib/escaped"),
        "write into /run": lambda: write("/run/escaped"),
        "write to /proc/sys": lambda: write("/proc/sys/kernel/core_pattern"),
        "write through the root of another process": lambda: write(f"/proc/{neighbour}/root/home/alice/by-proc"),
        "fill the disk": lambda: fill("filled"),
        "open a TCP connection": lambda: connect(("127.0.0.1", pid("port"))),
        "connect to an abstract socket of the host": lambda: connect("\0aiosd-escape-test"),
        "connect to the system bus": lambda: connect("/run/dbus/system_bus_socket"),
        "connect to a service in /run": lambda: connect(SERVICE),
        "connect to a terminal session of the caller": lambda: connect(SESSION),
        "connect to the daemon": lambda: connect("/run/aios/aios.sock"),
        "connect to the launcher": lambda: connect("/run/aios/launcher.sock"),
        "connect to the user manager": lambda: connect(f"/run/user/{uid}/systemd/private"),
        "systemd-run --user": lambda: run("systemd-run", "--user", "--collect", "true"),
        "systemd-run": lambda: run("systemd-run", "--no-ask-password", "--collect", "true"),
        "read the daemon's state": lambda: names("/var/lib/aiosd"),
        "read other runs": lambda: names("/var/lib/aios-launcher/runs"),
        "see other scratch directories": lambda: names("/var/lib/aios-launcher/scratch"),
        "trace the shim": lambda: attach(shim),
        "trace another process of the caller": lambda: attach(neighbour),
        "read the memory of the shim": lambda: read(f"/proc/{shim}/mem"),
        "read the environment of another process of the caller": lambda: read(f"/proc/{neighbour}/environ"),
        "signal the shim": lambda: signal_process(shim),
        "signal another process of the caller": lambda: signal_process(neighbour),
        "limit another process of the caller": lambda: limit(neighbour),
        "limit the shim": lambda: limit(shim),
        "demote another process of the caller": lambda: demote(neighbour),
        "demote the shim": lambda: demote(shim),
        "open another terminal of the caller": lambda: terminal(str(given["terminal"])),
        "signal the daemon": lambda: signal_process(pid("daemon")),
        "run a set-uid program": lambda: setuid_program("/usr/local/bin/aios-escape-suid"),
        "use inherited descriptors": descriptors,
        "open devices": devices,
        "join another control group": lambda: enter_cgroup("/sys/fs/cgroup/cgroup.procs"),
        "join the user's own control group": lambda: enter_cgroup(str(given["delegated"])),
        "mount": lambda: call("mount", b"tmpfs", b"/mnt", b"tmpfs", 0, None),
        "unmount what covers /home": lambda: call("umount2", b"/home", 2),
        "make a user namespace": new_user_namespace,
        "make a network namespace": lambda: call("unshare", CLONE_NEWNET),
        "chroot": lambda: call("chroot", b"/"),
        "set the host's name": lambda: call("sethostname", b"escaped", 7),
        "use another system call table": foreign_table,
        "leave a process behind": lambda: leave_behind(str(given["marker"])),
    }  # fmt: skip
    plain: dict[str, tuple[int | bytes | None, ...]] = {
        "keyctl": (0, -3, 0), "add_key": (b"user", b"x", b"y", 1, -3), "bpf": (5, None, 0),
        "perf_event_open": (None, 0, -1, -1, 0), "userfaultfd": (0,), "io_uring_setup": (1, None),
        "init_module": (None, 0, b""), "kexec_load": (0, 0, None, 0), "open_tree": (-100, b"/", 1),
        "fsopen": (b"tmpfs", 0),
        "process_vm_readv": (os.getpid(), None, 0, None, 0, 0), "pidfd_getfd": (-1, 0, 0), "syslog": (3, None, 0),
    }  # fmt: skip
    for name, arguments in plain.items():
        found[f"{name}(2)"] = lambda name=name, arguments=arguments: filtered(name, *arguments)  # type: ignore[misc]  # defaults
    return found


def filtered(name: str, *arguments: int | bytes | None) -> str:
    """Whether the call is let through to the kernel: EFAULT or EINVAL are answers of the kernel itself."""
    try:
        return system_call(name, *arguments)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise
        return f"the kernel answered {errno.errorcode.get(error.errno or 0)}"


def outcome(what: Callable[[], str]) -> str:
    """Try it in a child; what came of it."""
    reading, writing = PIPE[:] = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))
        try:
            text = f"{TOOK}: {what()}"
        except OSError as error:
            text = f"refused: {errno.errorcode.get(error.errno or 0, '')} {error.strerror or ''}"
        except subprocess.SubprocessError as error:
            text = f"refused: {error}"
        os.write(writing, text.encode()[:400])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        return f"refused: killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return text


def main() -> None:
    """Try everything."""
    with Task.connect() as task:
        given = dict(task.arguments)
        table: dict[str, Json] = {name: outcome(what) for name, what in attempts(given).items()}
        task.complete(table)


if __name__ == "__main__":
    if len(sys.argv) > 1:  # by hand: escape.py '{"neighbour": 1, …}'
        print(json.dumps({name: outcome(what) for name, what in attempts(json.loads(sys.argv[1])).items()}, indent=1))
    else:
        main()
