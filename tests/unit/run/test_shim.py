"""One run, from its gate to its exit record."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.run.records import read_exit
from aiosd.run.versions import SHIM
from tests.unit.run.shimrig import PYTHON

if TYPE_CHECKING:
    from tests.unit.run.shimrig import Rig


@pytest.mark.parametrize("status", [0, 1, 3, 127, 255])
def test_exit_status_is_told_as_it_was(rig: Rig, status: int) -> None:
    record = rig.start(rig.spec(["/bin/sh", "-c", f"exit {status}"])).go().wait()
    assert (record.started, record.exit_status, record.signal, record.launch_error) == (True, status, None, None)
    assert record.stopped_by is None
    assert record.usage.duration_usec is not None
    assert record.usage.cpu_usec is not None


def test_signal_is_told_by_name(rig: Rig) -> None:
    record = rig.start(rig.spec(["/bin/sh", "-c", "kill -SEGV $$"])).go().wait()
    assert (record.exit_status, record.signal, record.oom_kill) == (None, "SIGSEGV", False)


def test_a_program_that_is_not_there_is_a_launch_error(rig: Rig) -> None:
    record = rig.start(rig.spec(["/nonexistent/program"])).go().wait()
    assert not record.started
    assert record.exit_status is None
    assert record.launch_error == "cannot execute /nonexistent/program: No such file or directory"


def test_a_closed_gate_means_it_never_ran(rig: Rig) -> None:
    run = rig.start(rig.spec(["/bin/sh", "-c", "echo ran"]))
    run.control.close()
    record = run.wait()
    assert (record.started, record.launch_error) == (False, "the start gate was closed")
    assert run.stdout() == b""
    assert run.events() == []


def test_nothing_runs_before_go_and_go_counts_once(rig: Rig) -> None:
    run = rig.start(rig.spec(["/bin/sh", "-c", "echo $$"]))
    time.sleep(0.2)
    assert run.stdout() == b""
    run.go().go()
    assert run.wait().exit_status == 0
    assert [event.type for event in run.events()] == ["started"]
    assert run.events()[0].payload == {"pid": int(run.stdout()), "protocol": SHIM}


def test_both_streams_are_kept_byte_for_byte(rig: Rig) -> None:
    code = (
        "import os,sys\n"
        "for i in range(64):\n"
        "  os.write(1, bytes((i + j) % 256 for j in range(16384)))\n"
        "  os.write(2, bytes((i * 7 + j) % 256 for j in range(16384)))\n"
    )
    run = rig.start(rig.python(code)).go()
    record = run.wait()
    assert run.stdout() == b"".join(bytes((i + j) % 256 for j in range(16384)) for i in range(64))
    assert run.stderr() == b"".join(bytes((i * 7 + j) % 256 for j in range(16384)) for i in range(64))
    assert (record.stdout_bytes, record.stderr_bytes) == (1 << 20, 1 << 20)
    assert (record.stdout_dropped, record.stderr_dropped) == (0, 0)


def test_output_beyond_the_limit_is_counted_and_dropped(rig: Rig) -> None:
    run = rig.start(rig.python("import os\nos.write(1, b'x' * 5000)\n", log_max_bytes=1000)).go()
    record = run.wait()
    assert (record.stdout_bytes, record.stdout_dropped, run.stdout()) == (1000, 4000, b"x" * 1000)


def test_the_program_finds_its_arguments_and_nothing_else(rig: Rig) -> None:
    code = (
        "import os,json\n"
        "print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd(),\n"
        " 'fds': sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1],\n"
        " 'args': json.load(open(os.environ['AIOS_ARGUMENTS'])), 'stdin': os.readlink('/proc/self/fd/0')}))\n"
    )
    spec = rig.python(code)
    run = rig.start(spec).go({"path": "/usr", "depth": 2})
    assert run.wait().exit_status == 0
    told = json.loads(run.stdout())
    assert told["args"] == {"path": "/usr", "depth": 2}
    assert told["cwd"] == spec.view.scratch
    assert told["fds"] == [0, 1, 2, 3]
    assert told["stdin"] == "/dev/null"
    expected = {**spec.environment, "AIOS_TASK_FD": "3", "AIOS_ATTEMPT": "2"}
    assert {key: value for key, value in told["env"].items() if key != "LC_CTYPE"} == expected


def test_a_double_fork_does_not_outlive_its_program(rig: Rig) -> None:
    code = (
        "import os,time\n"
        "if os.fork() == 0:\n"
        "  os.setsid()\n"
        "  if os.fork(): os._exit(0)\n"
        "  open('orphan', 'w').write(str(os.getpid()))\n"
        "  time.sleep(60)\n"
        "while not os.path.exists('orphan') or not open('orphan').read(): time.sleep(0.01)\n"
        "print(open('orphan').read())\n"
    )
    run = rig.start(rig.python(code)).go()
    assert run.wait().exit_status == 0
    orphan = int(run.stdout())
    assert not Path(f"/proc/{orphan}").exists()


def test_cancel_is_sigterm_then_a_grace_then_sigkill(rig: Rig) -> None:
    run = rig.start(rig.spec(["/bin/sh", "-c", "trap 'echo told' TERM; echo up; while :; do sleep 0.05; done"])).go()
    while run.stdout() != b"up\n":
        time.sleep(0.01)
    begun = time.monotonic()
    run.say("cancel", reason="user_request", grace_ms=400)
    record = run.wait()
    assert (record.signal, record.stopped_by) == ("SIGKILL", "cancel")
    assert time.monotonic() - begun >= 0.35
    assert b"told" in run.stdout()


def test_a_program_that_ends_on_sigterm_is_not_killed(rig: Rig) -> None:
    code = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done"
    run = rig.start(rig.spec(["/bin/sh", "-c", code])).go()
    while run.stdout() != b"up\n":
        time.sleep(0.01)
    run.say("cancel", reason="user_request", grace_ms=10_000)
    record = run.wait()
    assert (record.exit_status, record.stopped_by) == (7, "cancel")
    assert run.stdout() == b"up\nbye\n"


def test_sigterm_to_the_shim_stops_the_program_and_is_told_apart(rig: Rig) -> None:
    run = rig.start(rig.spec(["/bin/sleep", "60"])).go()
    run.wait_for("started")
    os.kill(run.pid, 15)
    record = run.wait()
    assert (record.signal, record.stopped_by) == ("SIGTERM", "term")


def test_cancel_before_go_is_a_run_that_never_was(rig: Rig) -> None:
    run = rig.start(rig.spec(["/bin/echo", "ran"]))
    run.say("cancel", reason="user_request", grace_ms=0)
    record = run.wait()
    assert (record.started, record.stopped_by, run.stdout()) == (False, "cancel", b"")


def test_the_exit_record_is_one_line_with_every_documented_key(rig: Rig) -> None:
    run = rig.run(["/bin/true"])
    text = run.paths.exit.read_text()
    assert text.endswith("\n")
    assert text.count("\n") == 1
    value = json.loads(text)
    assert set(value) == {
        *("version", "run", "started", "exit_status", "signal", "oom_kill", "stopped_by", "launch_error", "ended_at"),
        *("usage", "stdout_bytes", "stderr_bytes", "stdout_dropped", "stderr_dropped", "events", "events_lost"),
    }
    assert value["version"] == 1
    assert value["run"] == run.spec.run
    assert read_exit(run.paths.exit) is not None


def test_pokes_are_not_piled_up_for_a_daemon_that_is_away(rig: Rig) -> None:
    code = (
        "import os,socket\n"
        "s = socket.socket(fileno=int(os.environ['AIOS_TASK_FD']))\n"
        'for i in range(500): s.sendall(b\'{"type": "log", "payload": {}}\\n\')\n'
    )
    run = rig.start(rig.python(code)).go()
    run.wait()
    assert len(run.events()) == 501
    packets = []
    while data := run.control.recv(4096):
        packets.append(json.loads(data)["type"])
    assert packets == ["poke", "exited"]


def _may_lower_oom_score() -> bool:
    """CAP_SYS_RESOURCE, bit 24 (capabilities(7)); some machines give root everything but this."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.split("CapEff:")[1].split()[0], 16) >> 24 & 1)


def test_the_shim_cannot_be_looked_into_by_its_program(rig: Rig) -> None:
    code = (
        "import os\n"
        "shim = os.getppid()\n"
        "try: os.listdir(f'/proc/{shim}/fd'); print('open')\n"
        "except PermissionError: print('closed')\n"
        "print(open(f'/proc/{shim}/oom_score_adj').read().strip(), open('/proc/self/oom_score_adj').read().strip())\n"
    )
    run = rig.start(rig.python(code)).go()
    run.wait()
    assert run.stdout() == (b"closed\n-900 0\n" if _may_lower_oom_score() else b"closed\n0 0\n")


def test_many_runs_share_one_server(rig: Rig) -> None:
    runs = [rig.start(rig.spec(["/bin/sh", "-c", f"echo {number}"])) for number in range(20)]
    for run in runs:
        run.go()
    assert [run.wait().exit_status for run in runs] == [0] * 20
    assert [run.stdout() for run in runs] == [b"%d\n" % number for number in range(20)]


def test_the_interpreter_of_the_tests_is_the_one_that_runs(rig: Rig) -> None:
    assert rig.run([PYTHON, "-I", "-c", "import sys; print(sys.version_info[:2])"]).stdout().startswith(b"(3, ")


def test_context_that_came_before_the_gate_opened_is_there_when_the_program_starts(rig: Rig) -> None:
    spec = rig.spec(["/bin/sh", "-c", "cat .aios-context/*; ls -A .aios-context; sleep 0.3; ls -A .aios-context"])
    spec.environment["AIOS_CONTEXT"] = f"{spec.view.scratch}/.aios-context"
    run = rig.start(spec)
    for name, data, first in (("a", b"one ", True), ("a", b"two\n", False), ("../b", b"x", True)):
        run.say("context", name=name, data=base64.b64encode(data).decode(), first=first)
    run.go()
    run.wait_for("started")
    run.say("context", name="late", data="", first=True)
    assert run.wait().exit_status == 0
    assert run.stdout() == b"one two\na\na\n"
    assert [event.type for event in run.events()] == ["protocol_error", "started"]
