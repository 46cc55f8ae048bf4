"""What the package puts on a system is right by the judgement of the programs that read it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.rig import host, product
from tests.rig.container import Container

if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKETS = ("aiosd.socket", "aiosd-lines.socket", "aios-launcher.socket")
UNITS = ("aiosd.service", "aios-launcher.service", *SOCKETS, "aios-tasks.slice")
#: systemd-analyze(1) security: 0 is closed, 10 is open.
EXPOSURE = {"aiosd.service": 2.0, "aios-launcher.service": 8.0}


@pytest.fixture(scope="module")
def installed() -> Iterator[Container]:
    """The product is there and set up, nothing of it runs."""
    try:
        booted = Container.boot(f"installed-{os.getpid()}", owned=True)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    try:
        product.deploy(booted, start=False)
        yield booted
    finally:
        booted.stop()


def test_units_are_sound(installed: Container) -> None:
    done = installed.run("systemd-analyze", "verify", "--man=no", *UNITS, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", EXPOSURE)
def test_exposure(installed: Container, unit: str) -> None:
    shown = installed.run("systemd-analyze", "security", "--no-pager", unit).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", shown)
    assert found is not None
    assert float(found[1]) < EXPOSURE[unit]
    page = (host.CHECKOUT / "docs/security.md").read_text(encoding="utf-8")
    assert f"| `{unit}` | {found[1]} |" in page


def test_units_are_enabled_by_preset(installed: Container) -> None:
    states = installed.run("systemctl", "is-enabled", "aiosd.service", "aios-launcher.socket").stdout.split()
    assert states == ["enabled", "enabled"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/run/aios", "root root 755"),
        ("/etc/aios/capabilities.d", "root root 755"),
        ("/var/lib/aios-launcher", "root root 755"),
        ("/var/lib/aios-launcher/runs", "root aiosd 750"),
        ("/usr/bin/aiosctl", "root root 755"),
        ("/usr/lib/python3/dist-packages/aiosd/errors.py", "root root 644"),
    ],
)
def test_owners_and_modes(installed: Container, path: str, expected: str) -> None:
    assert installed.run("stat", "-c", "%U %G %a", path).stdout.strip() == expected


def test_the_launcher_socket_is_the_daemons_alone(installed: Container) -> None:
    installed.run("systemctl", "start", "aios-launcher.socket")
    assert installed.run("stat", "-c", "%U %a", "/run/aios/launcher.sock").stdout.strip() == "aiosd 600"
    connect = "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('/run/aios/launcher.sock')"
    refused = installed.run("python3", "-c", connect, user="alice", check=False)
    assert "PermissionError" in refused.stderr


def test_nobody_else_may_own_the_name(installed: Container) -> None:
    request = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "RequestName")
    for user in ("alice", "root"):
        done = installed.run("busctl", "call", *request, "su", "org.aios.TaskManager", "0", user=user, check=False)
        assert (done.returncode, done.stderr) == (1, "Call failed: Access denied\n"), user


def test_nothing_was_installed_twice_or_left_writable(installed: Container) -> None:
    found = installed.sh(
        "find /usr/lib/python3/dist-packages/aiosd /usr/libexec/aios /usr/share/aios -perm /022 2>&1 || :"
    )
    assert found == ""


def test_the_daemon_may_be_there_only_when_it_is_called(installed: Container) -> None:
    """By the commands of docs/install.md; what a boot does with them is done by hand."""
    section = (host.CHECKOUT / "docs/install.md").read_text(encoding="utf-8").partition("## Enabling")[2]
    commands = re.findall(r"^    # (systemctl .*)$", section, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        installed.sh(command)
    states = installed.run("systemctl", "is-enabled", "aiosd.service", *SOCKETS, check=False).stdout.split()
    assert states == ["disabled", "enabled", "enabled", "enabled"]
    installed.run("systemctl", "start", *SOCKETS)
    assert installed.run("systemctl", "is-active", "aiosd.service", check=False).stdout == "inactive\n"
    assert '"state":"running"' in installed.run("aiosctl", "rpc", "service.status").stdout
    assert installed.run("systemctl", "is-active", "aiosd.service").stdout == "active\n"
