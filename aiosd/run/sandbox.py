"""The program's view of the system, entered by its shim as root before the gate: a path means the same to both."""

from __future__ import annotations

import os
import resource
import stat
from typing import TYPE_CHECKING

from aiosd.run import syscalls

if TYPE_CHECKING:
    from aiosd.run.spec import ShimSpec, View

_TMP_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - the directories themselves are what is replaced
_TMP_MAX = 64 * 1024 * 1024
_KIBI = 1024
_HARMLESS_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx", "log": "/run/systemd/journal/dev-log",
}  # fmt: skip
_TERMINALS = ("tty", "hvc", "console")
"""How the names of those begin at which somebody may have logged in; login(1) gives them to who did."""


def enter_namespaces(spec: ShimSpec) -> None:
    """Make the mount namespace (always) and the network and IPC namespaces (where the view says so) and fill them."""
    view = spec.view
    flags = syscalls.CLONE_NEWNS
    flags |= syscalls.CLONE_NEWNET if view.private_network else 0
    flags |= syscalls.CLONE_NEWIPC if view.private_ipc else 0
    syscalls.unshare(flags)
    if view.private_network:
        syscalls.raise_loopback()
    _arrange_mounts(view, spec.account)


def _arrange_mounts(view: View, account: syscalls.Account) -> None:
    """Copies of what stays writable are taken first, because what covers them comes after."""
    os.umask(0o022)  # directories that lead to what is shown are for everybody to pass
    # Private, not slave: a file system mounted later would otherwise appear in the view, and writable.
    syscalls.mount("", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    kept = [(path, syscalls.clone_tree(path)) for path in _existing(view.writable)]
    scratch = None if view.scratch_max is not None else syscalls.clone_tree(view.scratch)
    home = None if view.home is None else syscalls.clone_tree(view.home)
    if view.read_only:
        syscalls.set_mount_read_only("/", read_only=True, recursive=True)
    shown = [(path, syscalls.clone_tree(path)) for path in _existing(view.shown)]
    hidden = _leading_somewhere(view.hidden)
    for path in hidden:
        _cover(path, "mode=0755,size=64k")
    for path, fd in shown:
        _attach(fd, path)
    if view.private_devices:
        _arrange_devices()
    elif view.confined:
        _cover_terminals(account)
    if view.private_tmp:
        for path in _leading_somewhere(_TMP_DIRECTORIES):
            _cover(path, f"mode=1777,size={_TMP_MAX // _KIBI}k")
    if view.home is not None and home is not None:
        _attach(home, view.home)
        if view.read_only or not view.home_writable:
            syscalls.set_mount_read_only(view.home, read_only=not view.home_writable, recursive=True)
    for path, fd in kept:
        _attach(fd, path)
    _place_scratch(view, scratch, account)
    for path in (*hidden, *(["/dev"] if view.private_devices else [])):
        syscalls.set_mount_read_only(path, read_only=True, recursive=False)


def _arrange_devices() -> None:
    """A /dev with terminals of its own and what holds nothing, in the place of the machine's devices."""
    kept = [(f"/dev/{name}", syscalls.clone_tree(f"/dev/{name}")) for name in _HARMLESS_DEVICES]
    syscalls.mount("tmpfs", "/dev", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NOEXEC, "mode=0755,size=64k")
    for path, fd in kept:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
        _attach(fd, path)
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"/dev/{name}")
    _mount_terminals()


def _mount_terminals() -> None:
    options = "newinstance,ptmxmode=0666,mode=0620"
    syscalls.mount("devpts", "/dev/pts", "devpts", syscalls.MS_NOSUID | syscalls.MS_NOEXEC, options)


def _cover_terminals(account: syscalls.Account) -> None:
    """Nobody's terminal but the program's own: at its user's others it could read what is typed, passwords too."""
    if _is_there("/dev/pts"):
        _mount_terminals()
    with os.scandir("/dev") as entries:
        found = [entry for entry in entries if entry.name.startswith(_TERMINALS)]
    for entry in found:
        if entry.stat(follow_symlinks=False).st_uid == account.uid and not entry.is_dir(follow_symlinks=False):
            _attach(syscalls.clone_tree("/dev/null"), entry.path)


def _leading_somewhere(paths: tuple[str, ...]) -> list[str]:
    """Those that are there, as links to elsewhere too (/home may be one to /var/home): there it is covered."""
    return [path for path in paths if os.path.exists(path)]


def _existing(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if _is_there(path)]


def _is_there(path: str) -> bool:
    """Whether there is something at `path`, and no symbolic link."""
    try:
        return not stat.S_ISLNK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def _cover(path: str, options: str) -> None:
    syscalls.mount("tmpfs", path, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)


def _attach(fd: int, path: str) -> None:
    try:
        if not os.path.exists(path):
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                os.makedirs(path)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
        syscalls.attach_tree(fd, path)
    finally:
        os.close(fd)


def _place_scratch(view: View, clone: int | None, account: syscalls.Account) -> None:
    """A file system of its own where the size is limited: the kernel keeps the limit, and memory.max counts it too."""
    if clone is not None:
        _attach(clone, view.scratch)
        return
    os.makedirs(view.scratch, exist_ok=True)
    options = f"mode=0700,uid={account.uid},gid={account.gid},size={view.scratch_max}"
    _cover(view.scratch, options)


def limit_resources(open_files: int | None) -> None:
    """No core files (they would hold secrets), and as many descriptors as the manifest allows (setrlimit(2))."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if open_files is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = open_files if hard == resource.RLIM_INFINITY else min(open_files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
