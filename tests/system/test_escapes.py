"""Tries to get out: at each level below critical a program attempts everything that it should not be able to do.

`programs/escape.py` tries; ALLOWED says what a level permits, all else must be refused. The table of outcomes stands in
docs/security.md; `AIOSD_WRITE_DOCS=1` has the test write it anew. Each attempt is also made outside a task, where it
must succeed for those that are about the task's walls: a test of a wall that is not there proves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rig import host
from tests.system.programs.escape import SERVICE, SESSION
from tests.system.rules import RUN_ALL, polkit_rules

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from aiosd.model.jsontext import JsonObject
    from tests.rig.container import Container
    from tests.system.caller import Caller

LEVELS = ("public", "low", "medium", "high")
ALLOWED = {
    "read the caller's home": {"low", "medium", "high"},
    "write into the caller's home": {"medium", "high"},
    "open a TCP connection": {"medium", "high"},
    "connect to the system bus": {"medium", "high"},
    "connect to a service in /run": {"medium", "high"},
    "leave a process behind": set(LEVELS),
}
"""What is no escape at these levels. A process left behind is one only if it outlives its task; that is looked at."""

ONLY_OUTSIDE_WITH_RIGHTS = {
    "read /etc/shadow", "write into /usr", "write into /etc", "write into /var/lib", "write into /run", "mount",
    "write to /proc/sys", "connect to the launcher", "systemd-run", "read the daemon's state", "read other runs",
    "see other scratch directories", "signal the daemon", "open devices", "join another control group", "chroot",
    "unmount what covers /home", "make a network namespace", "set the host's name", "use another system call table",
    "join the user's own control group", "bpf(2)", "userfaultfd(2)", "open_tree(2)", "fsopen(2)", "syslog(2)",
    "init_module(2)", "kexec_load(2)", "perf_event_open(2)",
}  # fmt: skip
"""Refused to alice outside a task, too: users' own limits, which a task must not lift."""

ONLY_INSIDE = {
    "trace the shim", "read the memory of the shim", "signal the shim", "limit the shim", "demote the shim",
    "use inherited descriptors",
}  # fmt: skip
"""Meaningless outside."""

PAGE = host.CHECKOUT / "docs/security.md"
BEGIN, END = "<!-- escapes: begin -->", "<!-- escapes: end -->"
MARKER = "aios-escape-left-behind"

MANIFEST = """\
id = "test.escape.{level}"
title = "Escape from level {level}"
description = "Tries to do what it should not be able to do."
level = "{level}"
exec = ["/usr/bin/python3", "-I", "/src/tests/system/programs/escape.py"]

[input]
type = "object"
additionalProperties = true

[limits]
scratch_max = "4M"
"""

SLEEP = """\
id = "test.escape.sleep"
title = "Sleep as the caller"
description = "Sleeps for a while, with the caller's own uid."
level = "low"
exec = ["/usr/bin/sleep", "600"]
"""

LISTENERS = """
import os, socket
from tests.system.programs.escape import SERVICE, SESSION
os.makedirs(os.path.dirname(SESSION), exist_ok=True)
for path in (SERVICE, SESSION):
    listener = socket.socket(socket.AF_UNIX); listener.bind(path); listener.listen(64); os.chmod(path, 0o777)
    globals()[path] = listener
abstract = socket.socket(socket.AF_UNIX); abstract.bind("\\0aiosd-escape-test"); abstract.listen(64)
tcp = socket.socket(); tcp.bind(("127.0.0.1", 0)); tcp.listen(64)
print(tcp.getsockname()[1], flush=True)
while True:
    tcp.accept()[0].close()
"""

TERMINAL = "import os, time; ends = os.openpty(); print(os.ttyname(ends[1]), flush=True); time.sleep(600)"


@dataclass(frozen=True)
class Outcomes:
    """What came of every attempt: at each level, and outside as the same user."""

    levels: dict[str, dict[str, str]]
    outside: dict[str, str]


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@contextlib.contextmanager
def prepared(box: Container) -> Iterator[JsonObject]:
    """The world outside: neighbours, servers, files; what a program needs to know of it."""
    uid = box.run("id", "-u", "alice").stdout.strip()
    box.run("loginctl", "enable-linger", "alice")
    box.sh(f"systemctl start user@{uid}.service")
    box.sh("install -m 4755 /usr/bin/id /usr/local/bin/aios-escape-suid")
    box.sh("chmod 755 /home/alice /home/bob; echo secret >/home/bob/private; echo kept >/home/alice/kept")
    box.run("chown", "alice:", "/home/alice/kept")
    slice_ = f"/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service"
    with (
        box.popen("sh", "-c", "echo $$; exec sleep 600", user="alice") as neighbour,
        box.popen("python3", "-c", TERMINAL, user="alice") as terminal,
        box.popen("env", "PYTHONPATH=/src", "python3", "-B", "-c", LISTENERS) as servers,
    ):
        yield {
            "neighbour": int(_line(neighbour)), "port": int(_line(servers)), "marker": MARKER,
            "daemon": int(box.run("systemctl", "show", "-P", "MainPID", "aiosd").stdout),
            "delegated": f"{slice_}/cgroup.procs", "terminal": _line(terminal),
        }  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(equipped: Container, alice_at_seat: Caller) -> Iterator[Outcomes]:
    """Every attempt, made."""
    manifests = {f"test.escape.{level}": MANIFEST.format(level=level) for level in LEVELS} | {
        "test.escape.sleep": SLEEP
    }
    for name, text in manifests.items():
        equipped.write(f"/run/aios/capabilities.d/{name}.toml", text)
    equipped.run("systemctl", "reload", "aiosd.service")
    levels: dict[str, dict[str, str]] = {}
    try:
        with polkit_rules(equipped, "10-aiosd-escape", RUN_ALL), prepared(equipped) as given:
            for level in LEVELS:
                task = alice_at_seat.run(f"test.escape.{level}", given)
                assert task["status"] == "completed", task
                assert isinstance(task["result"], dict)
                levels[level] = {name: str(text) for name, text in task["result"].items()}
                left = equipped.run("pgrep", "--full", f"^{MARKER}", check=False).stdout
                assert not left, f"level {level}: a process outlived its task"
            outside = equipped.run(
                "env", "PYTHONPATH=/src", "python3", "-B", "/src/tests/system/programs/escape.py", json.dumps(given),
                user="alice", seat="seat0", timeout=120,
            ).stdout  # fmt: skip
            equipped.run("pkill", "--full", f"^{MARKER}", check=False)
            yield Outcomes(levels, json.loads(outside))
    finally:
        equipped.run("rm", *(f"/run/aios/capabilities.d/{name}.toml" for name in manifests))
        equipped.sh("rm -f /usr/local/bin/aios-escape-suid /home/alice/escaped /home/bob/private")
        equipped.run("rm", "-rf", SERVICE, str(Path(SESSION).parent))
        equipped.run("systemctl", "reload", "aiosd.service")


def got(text: str) -> bool:
    return text.startswith("got")


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_gets_out(level: str, outcomes: Outcomes) -> None:
    table = outcomes.levels[level]
    wrong = {name: text for name, text in table.items() if got(text) != (level in ALLOWED.get(name, set()))}
    assert not wrong


def test_the_walls_are_what_holds(outcomes: Outcomes) -> None:
    """Outside a task the same user does it."""
    refused = {name: text for name, text in outcomes.outside.items() if not got(text)}
    assert not refused.keys() - ONLY_OUTSIDE_WITH_RIGHTS - ONLY_INSIDE, refused


@pytest.mark.usefixtures("outcomes")
def test_another_process_of_the_caller_cannot_end_the_supervisor(alice_at_seat: Caller) -> None:
    alice = alice_at_seat
    task = alice.create("test.escape.sleep")
    run = alice.until_running(task)["run"]
    assert isinstance(run, dict)
    assert alice.box.run("kill", "-KILL", str(run["pid"]), user="alice", check=False).returncode != 0
    assert alice.status(task) == "working"
    alice.cancel(task)


def _word(text: str) -> str:
    return "done" if got(text) else "refused"


def table_of(outcomes: Outcomes) -> str:
    """As docs/security.md has it."""
    head = ["attempt", "as the user, outside", *LEVELS]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, outside in outcomes.outside.items():
        first = "" if name in ONLY_INSIDE else _word(outside)
        rows.append(f"| {name} | " + " | ".join([first, *(_word(outcomes.levels[one][name]) for one in LEVELS)]) + " |")
    return "\n".join(rows)


def test_the_page_says_what_happens(outcomes: Outcomes) -> None:
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    current, _, tail = rest.partition(END)
    if os.environ.get("AIOSD_WRITE_DOCS"):
        PAGE.write_text(f"{head}{BEGIN}\n{table_of(outcomes)}\n{END}{tail}")
    else:
        assert current.strip() == table_of(outcomes), "run this test with AIOSD_WRITE_DOCS=1"
