"""The Debian package on real systemd: built twice alike, installed, upgraded under a task, removed, purged."""

from __future__ import annotations

import filecmp
import fnmatch
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from typing import TYPE_CHECKING

import pytest

from aiosd import __version__
from tests import prerequisites
from tests.image.versions import EARLIER, NEXT, build, next_database
from tests.rig import host
from tests.rig.container import Container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PACKAGING = host.CHECKOUT / "packaging"
MANAGER = ("org.aios.TaskManager", "/org/aios/TaskManager", "org.aios.TaskManager1")
UNITS = ("aiosd.service", "aiosd.socket", "aiosd-lines.socket", "aios-launcher.socket")
COUNTER = """\
id = "test.count"
title = "Count"
description = "Counts for a while, one line a tenth of a second."
level = "public"
exec = ["/bin/sh", "-c", "i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo $i; sleep 0.1; done"]
"""


@pytest.fixture(scope="module")
def bare(package: Path, next_package: Path, earlier_package: Path) -> Iterator[Container]:
    """A Debian without the product; the packages are in /debs, /next and /earlier."""
    binds = {package.parent: "/debs", next_package.parent: "/next", earlier_package.parent: "/earlier"}
    binds |= {PACKAGING / "debian": "/debian", host.CHECKOUT: "/src"}
    try:
        booted = Container.boot(f"package-{os.getpid()}", bind=binds, owned=True)
    except host.Unavailable as error:
        prerequisites.missing(str(error))
    try:
        yield booted
    finally:
        booted.stop()


def listing(package: Path) -> dict[str, str]:
    """File name -> mode, without directories."""
    lines = subprocess.run(["dpkg-deb", "-c", str(package)], capture_output=True, text=True, check=True).stdout
    fields = [line.split(maxsplit=5) for line in lines.splitlines()]
    return {row[5].removeprefix("."): row[0] for row in fields if not row[0].startswith("d")}


def snapshot(box: Container) -> set[str]:
    """Every file of the system that a package may have to do with."""
    names = box.sh("find /etc /usr /var /opt /srv /run/aios /run/systemd/system -xdev 2>/dev/null || :").splitlines()
    # what dpkg and the journal keep of everything they have ever seen
    own = re.compile(r"/var/(lib/dpkg|cache/(apt|debconf|ldconfig|private)|log|tmp|lib/(systemd|dbus))(/|$)|/etc/.*-$")
    return {name for name in names if not own.match(name)}


def call(box: Container, method: str, *arguments: str, user: str = "root") -> list[object]:
    """A method of the manager, called with busctl."""
    words = ("busctl", "--json=short", "call", *MANAGER, method, *arguments)
    data: list[object] = json.loads(box.run(*words, user=user).stdout)["data"]
    return data


def test_versions_agree(package: Path) -> None:
    assert package.name == f"aiosd_{__version__}_all.deb"


def test_depends_on_what_the_project_says() -> None:
    project = tomllib.loads((host.CHECKOUT / "pyproject.toml").read_text())["project"]
    wanted = {f"python3-{name}" for name in (re.split(r"[>=]", need)[0] for need in project["dependencies"])}
    control = (PACKAGING / "debian/control").read_text()
    assert set(re.findall(r"^ (python3-[a-z0-9-]+) \(", control, re.MULTILINE)) == wanted


def test_the_same_bytes_again(source: Path, package: Path, tmp_path: Path) -> None:
    assert filecmp.cmp(build(source, tmp_path, "--unjudged"), package, shallow=False)


def test_holds_what_the_layout_says(source: Path, package: Path, tmp_path: Path) -> None:
    staged = tmp_path / "root"
    subprocess.run([sys.executable, str(source / "packaging/install"), "--root", str(staged)], check=True)
    laid_out = {f"/{file.relative_to(staged)}" for file in staged.rglob("*") if file.is_file()}
    pages = {f"/usr/share/man/man{file.stem[-1]}/{file.stem}.gz" for file in (source / "docs/man").glob("*.md")}
    documents = {f"/usr/share/doc/aiosd/{name}" for name in ("changelog.gz", "copyright")}
    documents |= {
        f"/usr/share/doc/aiosd/{file.name}" for file in (source / "docs").iterdir() if file.suffix in (".md", ".svg")
    }
    documents.add("/usr/share/lintian/overrides/aiosd")
    assert set(listing(package)) == laid_out | pages | documents


def test_manual_pages_are_set_as_they_are_meant(package: Path, tmp_path: Path) -> None:
    """man(1) has nothing to say of them, no line is too long, and nothing of their source's markup is left."""
    subprocess.run(["dpkg-deb", "-x", str(package), str(tmp_path)], check=True)
    pages = sorted(tmp_path.glob("usr/share/man/man?/*.gz"))
    assert len(pages) == len(list((host.CHECKOUT / "docs/man").glob("*.md")))
    for page in pages:
        words = ("env", "LC_ALL=C.UTF-8", "MANWIDTH=80", "man", "--warnings", "-E", "UTF-8", "-l", str(page))
        command = [str(PACKAGING / "tools"), "-w", str(tmp_path), "--", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == "", page.name
        lines = done.stdout.splitlines()
        assert [line for line in lines if re.search(r"^\s+(: |\d+\. )|\*\w|\w\*\*|^INNER", line)] == [], page.name
        assert [line for line in lines if len(line) > 90] == [], page.name


def test_no_file_is_more_than_it_has_to_be(package: Path) -> None:
    programs = {"/usr/bin/aiosctl", "/usr/bin/aios-task", "/usr/libexec/aios/aiosd", "/usr/libexec/aios/aios-launcher"}
    odd = {
        name: mode
        for name, mode in listing(package).items()
        if mode != ("-rwxr-xr-x" if name in programs else "-rw-r--r--")
    }
    assert odd == {}


def test_the_rpm_spec_has_the_same_files(source: Path, package: Path) -> None:
    """As rpm itself reads it; its Python directory is named otherwise, and manual pages may be packed otherwise."""
    # what Fedora's macro packages would define
    macros = ["python3_sitelib /usr/lib/python3/site-packages"]
    macros += [f"systemd_{name}() %{{nil}}" for name in ("post", "preun", "postun_with_restart")]
    defines = [word for macro in macros for word in ("--define", macro)]
    command = [str(PACKAGING / "tools"), "-w", str(source), "--", "rpmspec", *defines, "-P", "packaging/aiosd.spec"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Version:        {__version__}\n" in done.stdout
    lines = done.stdout.rpartition("\n%files\n")[2].partition("\n%changelog")[0].splitlines()
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith(("%dir ", "%doc "))]
    debian = {name for name in listing(package) if not name.startswith(("/usr/share/doc/", "/usr/share/lintian/"))}
    files = {name.replace("/usr/lib/python3/dist-packages/", "/usr/lib/python3/site-packages/") for name in debian}
    matching = {text: fnmatch.filter(files, f"{text}*" if text.endswith("/") else text) for text in patterns}
    assert [pattern for pattern, found in matching.items() if not found] == []
    assert files - set().union(*matching.values()) == set()


def test_life_of_the_package(bare: Container) -> None:
    """One story, as each chapter needs the one before it."""
    before = snapshot(bare)

    bare.run("dpkg", "-i", f"/debs/aiosd_{__version__}_all.deb", timeout=120)
    assert bare.run("systemctl", "is-active", *UNITS).stdout.split() == ["active"] * len(UNITS)
    assert bare.run("systemctl", "is-enabled", *UNITS).stdout.split() == ["enabled"] * len(UNITS)
    assert _missed(bare) == []
    told = bare.run("sh", "/debian/tests/busctl", check=False, timeout=120)
    assert (told.returncode, told.stdout[:5]) == (0, "PASS "), told.stdout + told.stderr

    _upgrade_under_a_task(bare)

    tasks = _tasks(bare)
    bare.run("dpkg", "-r", "aiosd", timeout=120)
    assert bare.sh("systemctl list-units --no-legend --plain 'aios*' | cut -d' ' -f1") in ("", "aios.slice\n")
    assert bare.run("busctl", "status", MANAGER[0], check=False).returncode != 0
    bare.run("test", "-e", "/var/lib/aiosd")

    bare.run("dpkg", "-i", "/next/next.deb", timeout=120)
    assert _tasks(bare) == tasks, "removed and installed again: the history is there"

    bare.run("dpkg", "--force-downgrade", "-i", f"/debs/aiosd_{__version__}_all.deb", timeout=120)
    assert _tasks(bare) == tasks, "the version before works on the newer database"
    assert f"version {next_database()}," in bare.run("aiosctl", "state", "check").stdout
    told = bare.run("sh", "/debian/tests/busctl", check=False, timeout=120)
    assert (told.returncode, told.stdout[:5]) == (0, "PASS "), told.stdout + told.stderr

    bare.run("dpkg", "-P", "aiosd", timeout=120)
    assert snapshot(bare) - before == set()
    assert bare.run("systemctl", "--failed", "--no-legend").stdout == ""
    bare.run("getent", "passwd", "aiosd")  # on purpose, see aiosd.postrm


def _missed(box: Container) -> list[str]:
    """What dpkg misses or finds changed, but for the pages and documents that this small system leaves out."""
    found = [line.split()[-1] for line in box.run("dpkg", "--verify", "aiosd", check=False).stdout.splitlines()]
    return [name for name in found if not name.startswith(("/usr/share/man/", "/usr/share/doc/"))]


def _tasks(box: Container) -> list[tuple[str, str]]:
    """Ids and states of every task, as root sees them."""
    [rows, *_] = call(box, "ListHistory", "a{sv}", "1", "limit", "u", "100")
    assert isinstance(rows, list)
    return sorted((row[0], row[3]) for row in rows)


def _upgrade_under_a_task(box: Container) -> None:
    """dpkg replaces the product while a task counts; the task notices nothing, and its end is known."""
    box.write("/etc/aios/capabilities.d/test.count.toml", COUNTER)
    box.run("systemctl", "reload", "aiosd.service")
    task, path = call(box, "CreateTask", "ssa{sv}", "test.count", "", "0", user="alice")
    pid = box.run("systemctl", "show", "-P", "MainPID", "aiosd.service").stdout
    box.run("dpkg", "-i", "/next/next.deb", timeout=120)
    assert box.run("systemctl", "show", "-P", "MainPID", "aiosd.service").stdout != pid, "the new version runs"
    assert box.run("dpkg-query", "-W", "-f", "${Version}", "aiosd").stdout == NEXT
    wait = ("busctl", "--json=short", "--timeout=60", "call", MANAGER[0], str(path), f"{MANAGER[2]}.Task", "Wait")
    status, ended = json.loads(box.run(*wait, "a{sv}", "0", user="alice").stdout)["data"]
    assert status == "completed", ended
    shown = box.run("aiosctl", "logs", str(task), user="alice").stdout
    assert shown.split() == [str(number) for number in range(1, 151)], "it ran once, whole"
    assert f"version {next_database()}," in box.run("aiosctl", "state", "check").stdout


def _show(box: Container, task: str) -> dict[str, object]:
    shown: dict[str, object] = json.loads(box.run("aiosctl", "show", task, "--json").stdout)
    return shown


def _until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.1)


def test_upgrade_from_an_earlier_version_under_running_tasks(bare: Container) -> None:
    """Its launcher and its shims as they were then; every kind of unfinished task goes on under this version."""
    bare.run("dpkg", "-i", f"/earlier/aiosd-{EARLIER}.deb", timeout=120)
    bare.write("/etc/aios/capabilities.d/test.count.toml", COUNTER)
    bare.sh("cp /src/tests/system/capabilities.d/test.ask.toml /etc/aios/capabilities.d/")
    bare.run("systemctl", "reload", "aiosd.service")

    def start(capability: str, *words: str) -> str:
        return bare.run("aiosctl", "run", capability, *words, user="alice").stdout.strip()

    ended = start("system.info.read")
    _until(lambda: _show(bare, ended)["status"] == "completed")
    asks, counts, stands = start("test.ask"), start("test.count"), start("test.count")
    after = start("system.info.read", f"--depends-on={counts}")
    _until(lambda: _show(bare, asks)["status"] == "input_required")
    bare.run("aiosctl", "pause", stands, user="alice")
    before = {task: _show(bare, task) for task in (ended, asks, counts, stands, after)}
    assert [before[task]["status"] for task in (counts, stands, after)] == ["working", "paused", "pending"]

    bare.run("dpkg", "-i", f"/debs/aiosd_{__version__}_all.deb", timeout=120)

    assert bare.run("dpkg-query", "-W", "-f", "${Version}", "aiosd").stdout == __version__
    assert _show(bare, ended) == before[ended], "what had ended is as it was"
    kept = ("run", "started_at", "arguments", "question")
    for task in (asks, counts, stands):
        now = _show(bare, task)
        assert [now.get(name) for name in kept] == [before[task].get(name) for name in kept], (
            "the same run, under its own shim"
        )
    bare.run("aiosctl", "answer", asks, "colour=red", user="alice")
    bare.run("aiosctl", "resume", stands, user="alice")
    done = bare.run("aiosctl", "wait", asks, counts, stands, after, user="alice", check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert _show(bare, asks)["result"] == {"colour": "red"}
    for task in (counts, stands):
        assert bare.run("aiosctl", "logs", task, user="alice").stdout.split() == [
            str(number) for number in range(1, 151)
        ]
    assert bare.run("aiosctl", "audit", "verify").returncode == 0
    bare.run("dpkg", "-P", "aiosd", timeout=120)


def test_what_a_later_image_adds_to_etc(bare: Container) -> None:
    """The image's rule: a file that the machine does not have comes from the factory copy, one that it has stays."""
    bare.sh("mkdir -p /usr/share/factory/etc/new/below; echo vendor >/usr/share/factory/etc/new/below/file")
    bare.sh("echo vendor >/usr/share/factory/etc/hostname; echo mine >/etc/hostname")
    rule = "image/mkosi.profiles/ab/mkosi.extra/usr/lib/tmpfiles.d/aios-etc.conf"
    bare.run("systemd-tmpfiles", "--create", f"/src/{rule}")
    assert bare.sh("cat /etc/new/below/file /etc/hostname") == "vendor\nmine\n"
