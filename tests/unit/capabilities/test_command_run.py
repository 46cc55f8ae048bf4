"""`compat.command.run`: the command as it is given, its output as the log, its end as the task's end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from aiosd.capabilities import command_run
from aiosd.manifest.schema import validate
from tests.unit.capabilities.shim_side import Outcome, Run, manifest

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject


def execute(tmp_path: Path, *argv: str, **more: str) -> Outcome:
    with Run("compat.command.run", {"argv": list(argv), **more}, tmp_path) as run:
        return run.finish()


def test_success_is_a_result_and_output_is_the_log(tmp_path: Path) -> None:
    with Run("compat.command.run", {"argv": ["echo", "$HOME", "a b", "*"]}, tmp_path) as run:
        assert run.result() == {"exit_status": 0}
    outcome = execute(tmp_path, "echo", "$HOME", "a b", "*")
    assert outcome.stdout == b"$HOME a b *\n"


def test_output_and_errors_are_kept_apart(tmp_path: Path) -> None:
    outcome = execute(tmp_path, "sh", "-c", "printf 'out\\377'; printf err >&2")
    assert (outcome.stdout, outcome.stderr) == (b"out\xff", b"err")


@pytest.mark.parametrize("status", [1, 3, 255])
def test_the_exit_status_is_the_commands(tmp_path: Path, status: int) -> None:
    outcome = execute(tmp_path, "sh", "-c", f"exit {status}")
    assert outcome.returncode == status
    assert not outcome.of("task_completion")
    assert not outcome.of("task_failed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_death_by_a_signal_is_death_by_that_signal(tmp_path: Path, number: signal.Signals) -> None:
    outcome = execute(tmp_path, "sh", "-c", f"kill -{number.value} $$")
    assert outcome.returncode == -number
    assert not outcome.of("task_completion")


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    assert "No such file or directory" in execute(tmp_path, "/no/such/program").failure
    (tmp_path / "no-program").touch(mode=0o644)
    assert "Permission denied" in execute(tmp_path, str(tmp_path / "no-program")).failure
    assert "No such file or directory" in execute(tmp_path, "true", cwd="/no/such/place").failure


def test_one_that_cannot_be_started_leaves_signals_as_they_were(tmp_path: Path) -> None:
    """Whoever reports that nothing could be started must be one that can be stopped."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(FileNotFoundError):
        command_run.execute([str(tmp_path / "no-program")], None)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_it_starts_where_it_is_told(tmp_path: Path) -> None:
    assert execute(tmp_path, "pwd", cwd="/usr/lib").stdout == b"/usr/lib\n"
    assert execute(tmp_path, "pwd").stdout.decode().strip() == str(tmp_path)


def test_the_command_has_neither_the_socket_nor_its_number(tmp_path: Path) -> None:
    script = "echo ${AIOS_TASK_FD-none}; ls /proc/self/fd | wc -l"
    assert execute(tmp_path, "sh", "-c", script).stdout.split() == [b"none", b"4"]


def test_a_signal_is_passed_on(tmp_path: Path) -> None:
    script = "trap 'echo told; exit 4' TERM; echo ready; while :; do sleep 0.05; done"
    with Run("compat.command.run", {"argv": ["sh", "-c", script]}, tmp_path) as run:
        assert run.process.stdout is not None
        assert run.process.stdout.readline() == b"ready\n"
        run.process.send_signal(signal.SIGTERM)
        outcome = run.finish()
    assert (outcome.stdout, outcome.returncode) == (b"told\n", 4)


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"argv": []}, {"argv": "ls"}, {"argv": [""]}, {"argv": ["ls", 1]}, {"argv": [None]}, {"argv": ["x"] * 1025},
        {"argv": ["ls"], "cwd": "relative"}, {"argv": ["ls"], "shell": True}, {"argv": ["ls"], "env": {"A": "b"}},
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_by_the_schema(arguments: JsonObject) -> None:
    assert validate(manifest("compat.command.run").input_schema, arguments)
