"""The rig itself: what it says about a command is true, and the host is afterwards what it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import prerequisites
from tests.rig import container, host
from tests.rig.commands import CommandFailed, encode
from tests.rig.container import Bus, Container
from tests.rig.processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

CGROUP = "aiosd-rig-"


@pytest.fixture(scope="module", params=list(Bus), ids=lambda bus: bus.value)
def bare(request: pytest.FixtureRequest) -> Iterator[Container]:
    name = f"rig-{os.getpid()}-{request.param.value}"
    try:
        booted = Container.boot(name, bus=request.param, owned=True)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    yield booted
    booted.stop()


def _host_state() -> dict[str, list[str]]:
    """What a box could leave behind; other test runs on this machine have boxes, too."""
    cgroups = [str(path) for top in host.cgroup_hierarchies() for path in top.glob("*/") if not _of_others(path.name)]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    networks = [path.name for path in Path("/sys/class/net").iterdir()]
    boxes = [name for name in container.names() if not _of_others(f"{CGROUP}{name}")]
    return {"cgroups": sorted(cgroups), "mounts": mounts, "networks": sorted(networks), "boxes": boxes}


def _of_others(name: str) -> bool:
    """Whether a cgroup belongs to a box that this test run has not booted."""
    return name.startswith(CGROUP) and str(os.getpid()) not in name.split("-")


def test_the_host_is_left_as_it_was() -> None:
    before = _host_state()
    try:
        booted = Container.boot(f"rig-{os.getpid()}-trace", owned=True)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    booted.run("systemd-run", "--scope", "--quiet", "--unit=deep", "true")
    during = _host_state()
    booted.stop()
    assert _host_state() == before
    assert during["mounts"] == before["mounts"]
    assert not booted.leader.alive()


def test_systemd_is_up(bare: Container) -> None:
    assert bare.read("/proc/1/comm") == "systemd\n"
    assert bare.run("systemctl", "--failed", "--no-legend").stdout == ""


def test_the_bus_is_the_one_asked_for(bare: Container) -> None:
    program = bare.sh("systemctl show dbus.service -p ExecStart --value")
    assert bare.name.endswith("broker") == ("dbus-broker" in program)


def test_status_and_output_come_back(bare: Container) -> None:
    done = bare.run("sh", "-c", "cat; echo err >&2; exit 3", input=b"\xff\r\n\x00", check=False)
    assert (done.returncode, encode(done.stdout), done.stderr) == (3, b"\xff\r\n\x00", "err\n")
    with pytest.raises(CommandFailed, match="err"):
        bare.run("sh", "-c", "echo err >&2; false")


def test_a_user_is_that_user_with_all_groups(bare: Container) -> None:
    assert bare.run("id", "-Gn", user="bob").stdout.split() == ["bob", "operators"]
    assert "NoNewPrivs:\t0" in bare.run("cat", "/proc/self/status", user="bob").stdout


@pytest.mark.parametrize(("seat", "expected"), [(None, ("", "yes")), ("seat0", ("seat0", "yes"))])
def test_a_session_is_local_only_on_a_seat(bare: Container, seat: str | None, expected: tuple[str, str]) -> None:
    show = 'loginctl show-session "$XDG_SESSION_ID" -p Seat -p Active --value'
    lines = bare.run("sh", "-c", show, user="alice", login=True, seat=seat).stdout.split("\n")
    assert (lines[0], lines[1]) == expected


@pytest.mark.parametrize("session", ["", "-u alice", "-u alice -S seat0"], ids=["root", "user", "seat"])
def test_a_person_gets_a_terminal_of_the_box(bare: Container, session: str) -> None:
    """With a controlling terminal: where a password is asked for, and Ctrl-C ends a command and not the shell."""
    command = f"{sys.executable} -m tests.rig exec {bare.name} {session} -- sh -c 'tty; echo done >/dev/tty'"
    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", command, "/dev/null"],
        cwd=host.CHECKOUT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert re.search(r"/dev/pts/\d+\s+done\s*$", done.stdout, re.MULTILINE), done.stdout


def test_a_late_command_is_ended_with_its_children(bare: Container) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        bare.run("sh", "-c", "sleep 4711 & wait", timeout=0.3)
    assert bare.run("pgrep", "-f", "sleep 4711", check=False).returncode == 1


def test_a_running_command_can_be_read_and_ended(bare: Container) -> None:
    with bare.popen("sh", "-c", "echo ready; exec sleep 4712", user="alice") as running:
        assert running.read_line() == "ready"
    assert running.returncode == -signal.SIGTERM
    assert bare.run("pgrep", "-f", "sleep 4712", check=False).returncode == 1


def test_a_box_of_a_killed_run_is_reaped() -> None:
    name = f"rig-{os.getpid()}-orphan"
    script = (
        "import os, signal\nfrom tests.rig.container import Container\n"
        f"Container.boot({name!r}, owned=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=host.CHECKOUT, check=False)
    assert done.returncode == -signal.SIGKILL
    leader = Process.load(host.state_directory() / name / "leader")
    assert leader is not None
    assert leader.alive()
    assert name in container.reap()
    assert not leader.alive()
