"""What the program is and sees, read from /proc by the program itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.model.manifest import HomeView
from aiosd.run.privilege import SHIM_UID
from aiosd.run.syscalls import Account
from tests.unit.run.shimrig import PYTHON, UID

if TYPE_CHECKING:
    from tests.unit.run.shimrig import Rig

ROOT = Path(__file__).parents[3]
STATUS = (
    "import json\n"
    "fields = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)\n"
    "print(json.dumps(fields))\n"
)
TRY = (
    "import os,sys,json\n"
    "def attempt(path):\n"
    "  try:\n"
    "    open(path, 'w').close(); os.unlink(path); return 'written'\n"
    "  except OSError as error: return os.strerror(error.errno)\n"
)


def status(rig: Rig, **changes: object) -> dict[str, str]:
    run = rig.start(rig.python(STATUS, **changes)).go()
    run.wait()
    found: dict[str, str] = json.loads(run.stdout())
    return found


def test_an_unprivileged_task_has_its_own_numbers_and_no_way_up(rig: Rig) -> None:
    found = status(rig, account=Account(UID, UID + 1, (UID + 2,)))
    assert found["Uid"].split() == [str(UID)] * 4
    assert found["Gid"].split() == [str(UID + 1)] * 4
    assert found["Groups"].split() == [str(UID + 2)]
    assert found["NoNewPrivs"] == "1"
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(found[capabilities], 16) == 0, capabilities


def test_root_below_critical_has_no_capability_either(rig: Rig) -> None:
    found = status(rig, account=Account(0, 0, ()))
    assert found["Uid"].split() == ["0"] * 4
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(found[capabilities], 16) == 0, capabilities
    assert found["NoNewPrivs"] == "1"


def test_a_loopback_that_may_not_be_raised_says_what_is_missing() -> None:
    """As in a container that shares its host's network."""
    code = (
        "import os\nfrom aiosd.run import syscalls\nos.getuid() or os.setuid(65534)\n"
        "try:\n  syscalls.raise_loopback()\nexcept OSError as error:\n  print(error.strerror)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "the loopback interface needs CAP_NET_ADMIN: Operation not permitted\n"


def test_root_at_critical_keeps_what_the_launcher_has(rig: Rig) -> None:
    found = status(rig, account=Account(0, 0, ()), keep_capabilities=True)
    own = Path("/proc/self/status").read_text()
    assert found["CapEff"] == own.split("CapEff:")[1].split()[0]
    assert found["NoNewPrivs"] == "1"


def test_signals_are_as_execve_promises(rig: Rig) -> None:
    found = status(rig)
    assert int(found["SigBlk"], 16) == 0
    # Python itself ignores SIGPIPE and SIGXFSZ once it runs; 32 and 33 are the C library's own. Nothing else may be.
    assert int(found["SigIgn"], 16) & ~(1 << 12 | 1 << 24 | 3 << 31) == 0


def test_its_network_is_a_loopback_of_its_own(rig: Rig) -> None:
    code = (
        "import socket\nprint([name for _, name in socket.if_nameindex()])\n"
        "a = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()\n"
        "b = socket.create_connection(a.getsockname(), 2); print('up')\n"
    )
    run = rig.start(rig.python(code, view={"private_network": True})).go()
    assert run.wait().exit_status == 0, run.stderr()
    assert run.stdout() == b"['lo']\nup\n"


def test_no_network_is_none_to_the_machines_own_host_either(rig: Rig) -> None:
    """AF_VSOCK knows no network namespace."""
    code = (
        "import os, socket\n"
        "try: socket.socket(socket.AF_VSOCK); print('made')\n"
        "except OSError as error: print(os.strerror(error.errno))\n"
        "socket.socket(socket.AF_UNIX); socket.socket(); socket.if_nameindex(); print('these are')\n"
    )
    run = rig.start(rig.python(code, view={"private_network": True, "confined": True})).go()
    assert run.wait().exit_status == 0, run.stderr()
    assert run.stdout() == b"Address family not supported by protocol\nthese are\n"


def test_a_network_that_may_only_be_looked_at(rig: Rig) -> None:
    code = (
        "import socket, os, ctypes\n"
        "def make(*a):\n"
        "  try: socket.socket(*a).close(); return 'made'\n"
        "  except OSError as error: return os.strerror(error.errno)\n"
        "print(make(16, 3, 0), make(16, 3, 4), make(2, 1), make(10, 2), make(1, 1), make(17, 3), sep='|')\n"
        "a, b = socket.socketpair(); a.send(b'pair'); print(b.recv(9).decode())\n"
        "print('lo' in [name for _, name in socket.if_nameindex()])\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for number in (425, 438):\n"
        "  print(libc.syscall(number, 2, 1, 0), os.strerror(ctypes.get_errno()), flush=True)\n"
        "print(libc.syscall(0x40000000 + 41, 2, 1, 0))\n"  # in the x32 table, which no program may use
    )
    run = rig.start(rig.spec([PYTHON, "-I", "-c", code], view={"route_sockets_only": True})).go()
    assert run.wait().signal == "SIGSYS", run.stderr()
    no = "Address family not supported by protocol"
    refused = "-1 Operation not permitted"
    expected = [f"made|{no}|{no}|{no}|{no}|{no}", "pair", "True", refused, refused]
    assert run.stdout().decode().splitlines() == expected


def test_a_read_only_view_leaves_the_scratch_directory_and_tmp(rig: Rig) -> None:
    code = TRY + (
        "print(json.dumps([attempt(p) for p in ('/etc/x', '/usr/x', '/var/x', 'mine', '/tmp/x', '/dev/shm/x')]))\n"
        "print(os.listdir('/tmp'))\n"
    )
    changes = {"read_only": True, "private_tmp": True, "private_ipc": True}
    run = rig.start(rig.python(code, view=changes, account=Account(0, 0, ()))).go()
    assert run.wait().exit_status == 0, run.stderr()
    answers, listing = run.stdout().splitlines()
    refused = "Read-only file system"
    assert json.loads(answers) == [refused, refused, refused, "written", "written", "written"]
    assert listing == b"[]"


def test_scratch_is_limited_by_the_kernel(rig: Rig) -> None:
    code = (
        "import os\ntry: open('big', 'wb').write(b'x' * 3_000_000)\nexcept OSError as e: print(os.strerror(e.errno))\n"
    )
    run = rig.start(rig.python(code, view={"scratch_max": 1024 * 1024})).go()
    run.wait()
    assert run.stdout() == b"No space left on device\n"


def test_an_artifact_comes_out_of_a_limited_scratch(rig: Rig) -> None:
    code = (
        "import socket\nopen('a', 'w').write('content')\ns = socket.socket(fileno=3)\n"
        'print(open("/proc/self/mountinfo").read().count("/scratch/"))\n'
        's.sendall(b\'{"type": "artifact", "payload": {"parts": [{"file": {"path": "a"}}]}}\\n\')\n'
    )
    run = rig.start(rig.python(code, view={"scratch_max": 1024 * 1024, "read_only": True})).go()
    run.wait()
    assert run.paths.blobs.read_bytes() == b"content"
    assert list(Path(run.spec.view.scratch).iterdir()) == [], "the files were in the run's own file system"


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (HomeView.NONE, ["No such file or directory", []]),
        (HomeView.READ_ONLY, ["Read-only file system", ["kept"]]),
        (HomeView.READ_WRITE, ["written", ["kept"]]),
    ],
)
def test_home_is_hidden_or_shown_as_the_view_says(rig: Rig, view: HomeView, expected: object) -> None:
    homes = rig.state / "home"
    mine, theirs = homes / "mine", homes / "theirs"
    for directory in (mine, theirs):
        directory.mkdir(parents=True)
        os.chown(directory, UID, UID)
        (directory / "kept").write_text("x")
    code = TRY + (
        f"mine = {str(mine)!r}\n"
        "listing = os.listdir(mine) if os.path.exists(mine) else []\n"
        f"print(json.dumps([attempt(mine + '/new'), listing])); print(os.path.exists({str(theirs)!r}))\n"
    )
    shown = None if view is HomeView.NONE else str(mine)
    changes = {"hidden": (str(homes),), "home": shown, "home_writable": view is HomeView.READ_WRITE}
    run = rig.start(rig.python(code, view={"read_only": True, **changes})).go()
    assert run.wait().exit_status == 0, run.stderr()
    answer, others = run.stdout().splitlines()
    assert json.loads(answer) == expected
    assert others == b"False"


def test_what_is_a_link_to_elsewhere_is_hidden_there(rig: Rig) -> None:
    """/home is one to /var/home on systems that keep all state in /var."""
    elsewhere, link = rig.state / "var-home", rig.state / "home"
    mine = link / "mine"
    (elsewhere / "mine").mkdir(parents=True)
    (elsewhere / "theirs").mkdir()
    link.symlink_to("var-home")
    os.chown(elsewhere / "mine", UID, UID)
    code = f"import os; print(os.listdir({str(elsewhere)!r}), os.listdir({str(link)!r}), os.path.isdir({str(mine)!r}))"
    run = rig.start(rig.python(code, view={"read_only": True, "hidden": (str(link),)})).go()
    assert run.wait().exit_status == 0, run.stderr()
    assert run.stdout() == b"[] [] False\n"
    with_home = {"read_only": True, "hidden": (str(link),), "home": str(mine)}
    run = rig.start(rig.python(code, view=with_home)).go()
    assert run.wait().exit_status == 0, run.stderr()
    assert run.stdout() == b"['mine'] ['mine'] True\n"


def test_of_what_is_hidden_a_part_may_be_shown(rig: Rig) -> None:
    place = rig.state / "run"
    for name in ("a/kept", "a/other", "b"):
        (place / name).mkdir(parents=True)
    (place / "a/kept/file").write_text("x")
    os.chown(place / "a/kept", UID, UID)
    code = TRY + (
        f"here = {str(place)!r}\n"
        "print(json.dumps([os.listdir(here), os.listdir(here + '/a'), os.listdir(here + '/a/kept')]))\n"
        "print(attempt(here + '/a/kept/new'), attempt(here + '/new'), sep='|')\n"
    )
    view = {"read_only": True, "hidden": (str(place),), "shown": (str(place / "a/kept"), str(place / "none"))}
    run = rig.start(rig.python(code, view=view)).go()
    assert run.wait().exit_status == 0, run.stderr()
    seen, answers = run.stdout().decode().splitlines()
    assert json.loads(seen) == [["a"], ["kept"], ["file"]]
    assert answers == "Read-only file system|Read-only file system"


@pytest.mark.parametrize("confined", [False, True])
def test_no_terminal_but_its_own(rig: Rig, *, confined: bool) -> None:
    """A terminal of its user's is not the task's to read; one that it makes works."""
    ours, theirs = os.openpty()
    try:
        name = os.ttyname(theirs)
        os.chown(name, UID, -1)
        code = (
            "import os\n"
            f"try: os.close(os.open({name!r}, os.O_RDWR | os.O_NOCTTY)); print('opened')\n"
            "except OSError as error: print(os.strerror(error.errno))\n"
            "a, b = os.openpty(); os.write(a, b'typed\\n'); print(os.read(b, 9).decode(), end='')\n"
        )
        run = rig.start(rig.python(code, view={"confined": confined, "read_only": True})).go()
        assert run.wait().exit_status == 0, run.stderr()
        expected = "No such file or directory" if confined else "opened"
        assert run.stdout().decode().splitlines() == [expected, "typed"]
    finally:
        os.close(ours)
        os.close(theirs)


def test_named_paths_stay_writable(rig: Rig) -> None:
    place = rig.state / "place"
    place.mkdir()
    os.chown(place, UID, UID)
    code = TRY + f"print(attempt({str(place / 'x')!r}))\n"
    run = rig.start(rig.python(code, view={"read_only": True, "writable": (str(place), "/nonexistent")})).go()
    run.wait()
    assert run.stdout() == b"written\n"


def test_limits_of_the_process(rig: Rig) -> None:
    code = "import resource as r\nprint(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE))\n"
    run = rig.start(rig.python(code, open_files=256)).go()
    run.wait()
    assert run.stdout() == b"(256, 256) (0, 0)\n"


def test_few_open_files_are_enough_to_start_and_to_supervise(rig: Rig) -> None:
    """As few as a manifest can allow: the shim has the same limit, and more open than that."""
    code = (
        "import os, resource, socket\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
        "open('a', 'w').write('content')\n"
        "s = socket.socket(fileno=3)\n"
        's.sendall(b\'{"type": "artifact", "payload": {"parts": [{"file": {"path": "a"}}]}}\\n\')\n'
    )
    run = rig.start(rig.python(code, open_files=16)).go()
    assert run.wait().exit_status == 0, run.stderr()
    assert run.stdout() == b"(16, 16)\n"
    assert run.paths.blobs.read_bytes() == b"content"


def _of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


@pytest.mark.parametrize(
    ("account", "keep", "expected"),
    [(Account(UID, UID, ()), False, 0), (Account(0, 0, ()), False, 0), (Account(0, 0, ()), True, 1 << 5)],
)
def test_the_shim_of_a_running_program_has_the_rights_of_its_task(
    rig: Rig, account: Account, expected: int, *, keep: bool
) -> None:
    """And CAP_KILL (5) at critical. Real and saved user are nobody's, so that nobody of the task can signal it."""
    run = rig.start(rig.spec(["/bin/sleep", "60"], account=account, keep_capabilities=keep)).go()
    run.wait_for("started")
    found = _of(run.pid)
    nobody = str(SHIM_UID)
    assert found["Uid"].split() == [nobody, str(account.uid), nobody, str(account.uid)]
    assert [int(found[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0, expected, expected, 0]
    assert found["NoNewPrivs"] == "1"
    assert keep or int(found["CapBnd"], 16) == 0


@pytest.mark.parametrize(
    ("account", "keep"), [(Account(UID, UID, ()), False), (Account(0, 0, ()), False), (Account(0, 0, ()), True)]
)
def test_before_go_there_is_no_process_of_the_program_and_no_right_in_effect(
    rig: Rig, account: Account, *, keep: bool
) -> None:
    run = rig.start(rig.spec(["/bin/sleep", "60"], account=account, keep_capabilities=keep))
    deadline = time.monotonic() + 30
    while _of(run.pid)["Uid"].split()[0] != str(SHIM_UID) or _of(run.pid)["NoNewPrivs"] != "1":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text() == ""
    found, lent = _of(run.pid), 1 << 24  # CAP_SYS_RESOURCE
    assert int(found["CapEff"], 16) & ~(1 << 5) == 0
    assert int(found["CapInh"], 16) == 0
    assert keep or int(found["CapPrm"], 16) & ~lent == 0


def test_the_shim_is_behind_the_walls_of_its_program(rig: Rig) -> None:
    run = rig.start(rig.spec(["/bin/sleep", "60"], view={"confined": True, "private_network": True})).go()
    run.wait_for("started")
    assert _of(run.pid)["Seccomp"] == "2"
    program = run.events()[0].payload["pid"]
    for namespace in ("mnt", "net"):
        mine, shims, programs = (Path(f"/proc/{pid}/ns/{namespace}").readlink() for pid in ("self", run.pid, program))
        assert shims == programs != mine


def test_a_view_that_cannot_be_made_is_a_launch_error_after_go(rig: Rig) -> None:
    spec = rig.python("print('ran')\n", view={"home": "/nonexistent/home"})
    record = rig.start(spec).go().wait()
    assert not record.started
    assert record.launch_error == "open_tree /nonexistent/home: No such file or directory"
