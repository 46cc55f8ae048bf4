"""Build, once, the Debian 13 root file system that every box boots, and keep it in the cache.

The directory is named by a hash of everything that shapes it, so an edit here makes a new one. It is never written to
afterwards: boxes put a tmpfs overlay on top. Downloaded packages are kept too, so that a rebuild needs little network.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.rig import cache, host

if TYPE_CHECKING:
    from pathlib import Path

SUITE = "trixie"

PACKAGES = (
    # the system
    *("systemd", "systemd-sysv", "dbus", "dbus-broker", "polkitd", "libpam-systemd"),
    *("sudo", "iproute2", "procps", "passwd", "strace"),
    # what the product depends on, in Debian's versions
    *(
        "python3",
        "python3-dbus-fast",
        "python3-pydantic",
        "python3-cryptography",
        "python3-pyroute2",
        "python3-aiohttp",
    ),
    *("python3-sdnotify", "python3-click", "python3-rich", "python3-jsonschema"),
    # its unit tests run on those versions as well
    *("python3-pytest", "python3-pytest-xdist", "python3-hypothesis", "python3-oauthlib"),
    # the kernel of the other kind of box, built for this libc
    "user-mode-linux",
)

#: Password of each person. root has one too: polkit's auth_admin asks for it. bob is an operator, carol may use sudo.
PASSWORDS = {"root": "rootpw", "alice": "alicepw", "bob": "bobpw", "carol": "carolpw"}
GROUPS = {"bob": "operators", "carol": "sudo"}

#: Units that wait for hardware, a network or a terminal, or that would do work in the background of a test.
MASKED = """
systemd-networkd.service systemd-networkd.socket systemd-resolved.service systemd-timesyncd.service
systemd-firstboot.service systemd-homed.service systemd-udevd.service systemd-udev-trigger.service
systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-journal-flush.service systemd-pcrmachine.service
systemd-tpm2-setup.service systemd-tpm2-setup-early.service systemd-logind-varlink.socket console-getty.service
getty@tty1.service getty-static.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer
e2scrub_all.timer e2scrub_reap.service systemd-tmpfiles-clean.timer motd-news.timer dev-hugepages.mount
dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount
""".split()

FILES = {
    # A fixed machine id keeps "first boot" work (presets, firstboot) out of every boot.
    "etc/machine-id": "7f3d0a52c1b94e6f8a1d5c0be2946d17\n",
    "etc/hostname": "box\n",
    "etc/hosts": "127.0.0.1 localhost box\n::1 localhost\n",
    # Everything a test provoked can be read back, whatever the rate.
    "etc/systemd/journald.conf.d/box.conf": "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n",
    "etc/systemd/system.conf.d/box.conf": "[Manager]\nDefaultTimeoutStopSec=10s\n",
}

#: Not needed by any test, and half of the size.
EXCLUDED = (
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/doc/*",
    "/usr/share/info/*",
    "/usr/lib/uml/modules/*",
)


def _finishing_script() -> str:
    """The shell script that mmdebstrap runs at the end with the root directory as `$1`."""
    lines = ["set -eu", 'cd "$1"']
    lines += [f"ln -sf /dev/null etc/systemd/system/{unit}" for unit in MASKED]
    for name, text in FILES.items():
        lines.append(f"mkdir -p {name.rpartition('/')[0]}; cat >{name} <<'END'\n{text}END")
    # dbus-daemon is the bus, as on Debian; a box asked for the broker swaps it in.
    lines.append("rm -f etc/systemd/system/dbus.service")
    lines.append('chroot "$1" systemctl set-default multi-user.target >/dev/null 2>&1')
    lines.append('chroot "$1" groupadd operators')
    lines += [f'chroot "$1" useradd -m -s /bin/bash {user}' for user in PASSWORDS if user != "root"]
    lines += [f'chroot "$1" usermod -aG {group} {user}' for user, group in GROUPS.items()]
    secrets = " ".join(f"{user}:{password}" for user, password in PASSWORDS.items())
    # Few hash rounds: a test answers a password prompt often.
    lines.append(f"printf '%s\\n' {secrets} | chroot \"$1\" chpasswd -c SHA256 -s 1000")
    # What ConditionNeedsUpdate= would do on the first boot is done now.
    lines.append('chroot "$1" systemd-sysusers 2>/dev/null || :')
    lines.append('chroot "$1" journalctl --update-catalog >/dev/null 2>&1 || :')
    lines.append("touch -d '+1 minute' etc/.updated var/.updated")
    lines.append("rm -rf var/lib/apt/lists/* var/log/*.log var/log/apt")
    return "\n".join(lines) + "\n"


def _mmdebstrap(target: Path, packages: Path, script: Path) -> list[str]:
    return [
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", "--include=" + ",".join(PACKAGES)),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
        *("--dpkgopt=force-unsafe-io", "--aptopt=APT::Install-Recommends false"),
        *("--aptopt=Acquire::Languages none", "--aptopt=Acquire::Retries 3"),
        # keep the packages that were downloaded, and offer those of the last time
        "--skip=cleanup/apt,download/empty",
        '--setup-hook=mkdir -p "$1"/var/cache/apt/archives',
        f"--setup-hook=sync-in {packages} /var/cache/apt/archives",
        f"--customize-hook=sync-out /var/cache/apt/archives {packages}",
        '--customize-hook=rm -rf "$1"/var/cache/apt/*',
        f'--customize-hook=sh {script} "$1"',
        *(SUITE, str(target)),
    ]


def key() -> str:
    """Name of the root file system that this source describes."""
    shape = [SUITE, *PACKAGES, *EXCLUDED, _finishing_script()]
    return f"{SUITE}-{hashlib.sha256(chr(0).join(shape).encode()).hexdigest()[:12]}"


def root_directory() -> Path:
    """The ready root file system; built first when it is not in the cache (about a minute, 250 MB).

    Raises `host.Unavailable` when it cannot be built here.
    """
    place = host.cache_directory()
    ready = place / key()
    if ready.is_dir():
        return cache.use(ready) / "root"
    host.require_root()
    host.require(host.TOOLS)
    with host.locked(place / "rootfs.lock"):
        if not ready.is_dir():
            # packaging/tools fills the same directory of downloaded packages
            with host.locked(place / "packages.lock"):
                _build(place, ready)
            cache.use(ready)
            cache.forget(f"{SUITE}-*")
    return ready / "root"


def _build(place: Path, ready: Path) -> None:
    building = ready.with_name(ready.name + ".building")
    packages = place / f"packages-{SUITE}"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    packages.mkdir(exist_ok=True)
    script = building / "finish.sh"
    script.write_text(_finishing_script())
    done = subprocess.run(
        _mmdebstrap(building / "root", packages, script),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    (building / "log").write_text(done.stdout)
    if done.returncode != 0:
        raise host.Unavailable("mmdebstrap could not build the root file system:\n" + done.stdout[-2000:])
    shutil.rmtree(packages / "partial", ignore_errors=True)
    (packages / "lock").unlink(missing_ok=True)
    building.rename(ready)
