"""The cached root file system under a user-mode-linux kernel of its own, with every cgroup v2 controller.

For what a container on a host without v2 controllers cannot show: limits that are enforced, and what happens at them.
One CPU, no memory.pressure, several times slower. Needs no virtualisation: the kernel is an ordinary program.

The kernel runs in a mount and pid namespace of its own that dies with it, chrooted into the root file system, because
it is linked for that libc. Its disk is a copy-on-write layer, in memory, over an ext4 image made once. Commands go
through `uml_agent.py` over a directory that both sides see; their output comes back when they have ended.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rig import cache, host, rootfs
from tests.rig.commands import Box, CommandFailed, argv_inside, decode, encode
from tests.rig.processes import Process

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Seconds; five are usual, the first time after a change half a minute more for the disk image.
BOOT_TIMEOUT = 300.0
#: How many times as long as in a container a command may take.
SLOWER = 4
MEMORY = "1G"
DISK = "3G"

_HERE = Path(__file__).parent
_AGENT_UNIT = """\
[Unit]
After=multi-user.target

[Service]
Type=idle
ExecStart=/usr/local/sbin/uml-agent
KillMode=process
"""
_numbers = itertools.count()
_children: dict[str, subprocess.Popen[bytes]] = {}


class Machine(Box):
    """A user-mode-linux system that is up. Make one with `boot`, find one that another process booted with `attach`."""

    def __init__(self, name: str) -> None:
        """Use `boot` or `attach`."""
        self.name = name
        self._state = _state(name)

    @classmethod
    def attach(cls, name: str) -> Machine:
        """The running machine of that name; `host.Unavailable` when there is none."""
        if not _is_up(name):
            raise host.Unavailable(f"no machine {name} is running")
        return cls(name)

    @classmethod
    def boot(cls, name: str, *, bind: Mapping[Path, str] | None = None, owned: bool = False) -> Machine:
        """Boot and wait until systemd has started everything.

        `bind`: host directory -> where it is seen, read-only. `owned`: `reap` may stop it once this process is gone.
        """
        host.require_root()
        if os.uname().machine != "x86_64":
            raise host.Unavailable("user-mode-linux needs an x86_64 host")
        host.require(host.MACHINE_TOOLS)
        root, image, preload = rootfs.root_directory(), _image(), _preload()
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}", name):
            raise ValueError(f"not a machine name: {name}")
        state = _state(name)
        try:
            (state / "share/q").mkdir(parents=True)
        except FileExistsError:
            raise host.Unavailable(f"a machine {name} is already there; stop it first") from None
        cache.hold(state, root, image)
        if owned:
            Process.own().save(state / "owner")
        try:
            _start(name, root, image, preload, bind or {})
        except BaseException:
            remove(name)
            raise
        return cls(name)

    def run(
        self,
        *argv: str,
        user: str = "root",
        login: bool = False,
        seat: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes = "",
        check: bool = True,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """See `Box.run`. `input` is given as a whole, output comes as a whole; `timeout`: as in a container."""
        request = self._state / f"share/q/{os.getpid()}-{next(_numbers)}"
        request.mkdir()
        try:
            (request / "in").write_bytes(encode(input) if isinstance(input, str) else input)
            (request / "new").write_text(json.dumps(argv_inside(argv, user=user, login=login, seat=seat, env=env)))
            (request / "new").rename(request / "go")
            status = self._answer(request, argv, timeout * SLOWER)
            out, err = decode((request / "out").read_bytes()), decode((request / "err").read_bytes())
        finally:
            shutil.rmtree(request, ignore_errors=True)
        if check and status != 0:
            raise CommandFailed(status, list(argv), out, err)
        return subprocess.CompletedProcess(list(argv), status, out, err)

    def _answer(self, request: Path, argv: tuple[str, ...], timeout: float) -> int:
        """Wait for the exit status; a command that is late is killed."""
        deadline = time.monotonic() + timeout
        while not (request / "rc").exists():
            if not _is_up(self.name):
                raise host.Unavailable(f"machine {self.name} is not running any more")
            if time.monotonic() > deadline:
                (request / "kill").write_text(str(int(signal.SIGKILL)))
                time.sleep(0.5)
                raise subprocess.TimeoutExpired(list(argv), timeout)
            time.sleep(0.01)
        return int((request / "rc").read_text())

    def stop(self) -> None:
        """See `Box.stop`."""
        remove(self.name)


def names() -> list[str]:
    """Every machine that has left a state directory."""
    return sorted(entry.name for entry in _states().iterdir())


def reap() -> list[str]:
    """Stop the machines whose owner is gone (a test run that was killed); their names."""
    gone = []
    for name in names():
        owner = Process.load(_state(name) / "owner")
        if owner is not None and not owner.alive():
            remove(name)
            gone.append(name)
    return gone


def remove(name: str) -> None:
    """Kill the machine `name`; its namespaces and its disk go with it."""
    supervisor = Process.load(_state(name) / "supervisor")
    if supervisor is not None:
        supervisor.kill(signal.SIGKILL)  # unshare --kill-child takes the kernel along
    child = _children.pop(name, None)
    if child is not None:
        child.wait()
    while supervisor is not None and supervisor.alive():
        time.sleep(0.01)
    shutil.rmtree(_state(name), ignore_errors=True)


def _states() -> Path:
    directory = host.state_directory() / ".machines"
    directory.mkdir(exist_ok=True)
    return directory


def _state(name: str) -> Path:
    return _states() / name


def _is_up(name: str) -> bool:
    supervisor = Process.load(_state(name) / "supervisor")
    return supervisor is not None and supervisor.alive()


def _preload() -> Path:
    """The library of `xstate.c`, compiled once."""
    source = _HERE / "xstate.c"
    library = host.cache_directory() / f"xstate-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so"
    if not library.exists():
        fresh = library.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(fresh), str(source)], check=True)
        fresh.rename(library)
    return library


def _image() -> Path:
    """The root file system with the agent in it, as an ext4 image, made once."""
    agent = _HERE / "uml_agent.py"
    shape = hashlib.sha256(agent.read_bytes() + (_AGENT_UNIT + DISK).encode()).hexdigest()[:8]
    image = host.cache_directory() / f"{rootfs.key()}-{shape}.ext4"
    with host.locked(host.cache_directory() / "image.lock"):
        if not image.exists():
            _make_image(image, agent)
            cache.forget(f"{rootfs.SUITE}-*")
    return cache.use(image)


def _make_image(image: Path, agent: Path) -> None:
    scratch = image.with_suffix(".building")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    fresh = image.with_suffix(".new")
    layer = scratch / "layer"
    units = layer / "etc/systemd/system"
    (units / "multi-user.target.wants").mkdir(parents=True)
    (units / "uml-agent.service").write_text(_AGENT_UNIT)
    (units / "multi-user.target.wants/uml-agent.service").symlink_to("../uml-agent.service")
    (units / "systemd-modules-load.service").symlink_to("/dev/null")
    (layer / "usr/local/sbin").mkdir(parents=True)
    shutil.copy(agent, layer / "usr/local/sbin/uml-agent")
    (layer / "usr/local/sbin/uml-agent").chmod(0o755)
    script = (
        f"mount -t overlay rig -o lowerdir={layer}:{rootfs.root_directory()} {scratch}\n"
        f"truncate -s {DISK} {fresh}\nmke2fs -q -t ext4 -d {scratch} {fresh}\n"
    )
    done = subprocess.run(["unshare", "-m", "sh", "-ec", script], capture_output=True, text=True, check=False)
    shutil.rmtree(scratch)
    if done.returncode != 0:
        fresh.unlink(missing_ok=True)
        raise host.Unavailable("the disk image could not be made: " + done.stderr[-1000:])
    fresh.rename(image)


def _script(root: Path, image: Path, preload: Path, state: Path, bind: Mapping[Path, str]) -> str:
    """What runs in the new namespaces: assemble a root for the kernel's process, become the kernel."""
    top, inside = state / "top", state / "top/root"
    lines = [f"mount -t tmpfs rig {top}", f"mkdir {top}/upper {top}/work {inside}"]
    lines.append(f"mount -t overlay rig -o lowerdir={root},upperdir={top}/upper,workdir={top}/work {inside}")
    lines += [f"mount -t proc proc {inside}/proc", f"mount --rbind /dev {inside}/dev"]
    lines.append(f"mount -t tmpfs -o mode=1777 tmp {inside}/tmp")
    shared = {"share": state / "share", **{f"share.{number}": source for number, source in enumerate(bind)}}
    for name, source in shared.items():
        lines.append(f"mkdir {inside}/{name}; mount --bind {shlex.quote(str(source))} {inside}/{name}")
    # in a directory: the kernel's copy-on-write code cannot name a file that is directly in /
    lines.append(f"mkdir {inside}/uml")
    for name, source in (("uml/disk", image), ("uml/preload.so", preload)):
        lines.append(f"touch {inside}/{name}; mount --bind {source} {inside}/{name}")
    kernel = [
        *("env", "-i", "LD_PRELOAD=/uml/preload.so", "TMPDIR=/tmp", "HOME=/", "linux.uml", f"mem={MEMORY}"),
        *(
            "ubd0=/tmp/changes,/uml/disk",
            "root=/dev/ubda",
            "rw",
            "rootfstype=ext4",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
        ),
        *("systemd.show_status=false", "quiet"),
    ]
    return "\n".join([*lines, f"exec chroot {inside} {shlex.join(kernel)}"])


def _start(name: str, root: Path, image: Path, preload: Path, bind: Mapping[Path, str]) -> None:
    state = _state(name)
    (state / "top").mkdir()
    (state / "share/binds").write_text(json.dumps(list(bind.values())))
    argv = ["unshare", "-m", "-p", "--fork", "--kill-child", "sh", "-ec", _script(root, image, preload, state, bind)]
    with (state / "log").open("wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    _children[name] = process
    Process.of(process.pid).save(state / "supervisor")
    deadline = time.monotonic() + BOOT_TIMEOUT
    while not (state / "share/ready").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise host.Unavailable("user-mode-linux: " + (state / "log").read_text(errors="replace")[-2000:])
        time.sleep(0.02)
