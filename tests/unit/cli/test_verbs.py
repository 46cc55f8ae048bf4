"""Each verb: what it asks of the daemon, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from aiosd.cli.main import VERBS
from aiosd.errors import ErrorKind
from tests.unit.cli.daemon import ONE, THREE, TWO, Daemon

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject
    from tests.unit.cli.conftest import Ran

    Aiosctl = Callable[..., Ran]

SESSION = "ps-01hzzzzzzz0000000000000001"


async def good_life(daemon: Daemon, task_id: str) -> None:
    """Starts, says something on both streams, ends well."""
    daemon.change(task_id, "working", attempt=1)
    daemon.log(task_id, "stdout", b"first\n\xff\x00")
    daemon.log(task_id, "stderr", b"complaint\n")
    daemon.event(task_id, "task.progress", progress={"percent": 40, "message": "hashing"})
    await asyncio.sleep(0.4)
    daemon.log(task_id, "stdout", b"last")
    daemon.change(task_id, "completed", result={"files": 3})


async def failing_life(daemon: Daemon, task_id: str) -> None:
    daemon.change(task_id, "working", attempt=1)
    daemon.log(task_id, "stdout", b"")
    daemon.log(task_id, "stderr", b"")
    await asyncio.sleep(0)
    daemon.change(task_id, "failed", reason="exit-status", exit={"exit_status": 7, "signal": None})


class TestRun:
    def test_prints_the_id_and_types_the_arguments(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        words = ("path=12", "depth=3", "hidden=yes", "exclude=a", "exclude=b", 'raw:={"a": null}')
        ran = aiosctl("run", "files.checksum", *words)
        (task,) = daemon.tasks.values()
        assert (ran.status, ran.out, ran.err) == (0, f"{task['task_id']}\n", "")
        assert task["arguments"] == {
            "path": "12", "depth": 3, "hidden": True, "exclude": ["a", "b"], "raw": {"a": None},
        }  # fmt: skip

    def test_a_wrong_key_is_refused_before_anything_runs(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        ran = aiosctl("run", "files.checksum", "pth=/")
        assert ran.status == 64
        assert "there are: depth, exclude, hidden, path" in ran.err
        assert daemon.tasks == {}

    @pytest.mark.parametrize("flag", ["--json", "--arguments"])
    def test_takes_arguments_as_json(self, aiosctl: Aiosctl, daemon: Daemon, flag: str) -> None:
        ran = aiosctl("run", "files.checksum", flag, '{"path": "/usr"}')
        (task,) = daemon.tasks.values()
        assert ran.out == f"{task['task_id']}\n"
        assert task["arguments"] == {"path": "/usr"}

    def test_takes_json_from_stdin(self, aiosctl: Aiosctl, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO('{"path": "/ü"}'.encode())))
        assert aiosctl("run", "files.checksum", "--json", "-").status == 0
        (task,) = daemon.tasks.values()
        assert task["arguments"] == {"path": "/ü"}

    def test_plain_json_flag_is_about_the_output(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        ran = aiosctl("run", "files.checksum", "--json", "path=/usr")
        (task_id,) = daemon.tasks
        assert ran.json == {"task_id": task_id, "path": f"/org/aios/TaskManager/task/{task_id.replace('-', '_')}"}

    def test_words_and_json_together_are_refused(self, aiosctl: Aiosctl) -> None:
        assert aiosctl("run", "files.checksum", "path=/", "--arguments", "{}").status == 64

    def test_passes_every_option_on(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        aiosctl(
            "run", "files.checksum", "--priority=high", "--timeout=1min 30s", "--retry=3", "--retry-delay=500ms",
            "--depends-on=last", "--title=Mine", "--idempotency-key=k1", '--metadata={"a":1}',
            f"--session={SESSION}", "--parent=last", "--not-before=2026-03-01T10:00:00Z", "--defer",
            '--limits={"tasks_max":8}',
        )  # fmt: skip
        assert daemon.options("CreateTask") == {
            "priority": "high", "timeout_ms": 90_000, "retry_max_attempts": 3, "retry_delay_ms": 500,
            "depends_on": [ONE], "title": "Mine", "idempotency_key": "k1", "metadata": '{"a":1}',
            "session_id": SESSION, "parent_task_id": ONE, "not_before": 1772359200000000, "defer": True,
            "limits": '{"tasks_max":8}',
        }  # fmt: skip

    def test_a_duration_is_from_now_on(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        begun = time.time()
        aiosctl("run", "files.checksum", "--not-before=2h")
        asked = daemon.options("CreateTask")["not_before"]
        assert isinstance(asked, int)
        assert begun + 7200 - 1 <= asked / 1e6 <= time.time() + 7200 + 1
        assert aiosctl("run", "files.checksum", "--not-before=2h ago").status == 64

    def test_follow_gives_output_byte_for_byte_and_progress_as_lines(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.script = good_life
        ran = aiosctl("run", "files.checksum", "--follow")
        assert ran.status == 0
        assert ran.raw.startswith(b"first\n\xff\x00last")
        assert json.loads(ran.raw.removeprefix(b"first\n\xff\x00last")) == {"files": 3}
        assert "complaint\n" in ran.err
        assert " 40% hashing\n" in ran.err
        assert "\x1b" not in ran.err
        assert ran.err.splitlines()[-1].endswith("completed")

    def test_follow_in_json(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.script = good_life
        lines = aiosctl("run", "files.checksum", "--follow", "--json").json_lines
        kinds = [line["kind"] for line in lines]
        assert kinds[0] == "task"
        assert kinds[-1] == "task"
        assert {"kind": "output", "stream": "stderr", "encoding": "utf-8", "text": "complaint\n"} in lines
        assert {"kind": "output", "stream": "stdout", "encoding": "base64", "text": "Zmlyc3QK/wA="} in lines
        assert "task.progress" in kinds

    def test_wait_exits_with_the_programs_status(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.script = failing_life
        ran = aiosctl("run", "files.checksum", "--wait")
        assert (ran.status, ran.out) == (7, "")
        assert "failed with exit status 7 (exit-status)" in ran.err

    def test_wait_prints_the_result(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.script = good_life
        assert aiosctl("run", "files.checksum", "--wait").json == {"files": 3}

    def test_follows_from_attempt_to_attempt(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        async def twice(daemon: Daemon, task_id: str) -> None:
            for attempt in (1, 2):
                for stream in ("stdout", "stderr"):
                    daemon.log(task_id, stream, f"{stream} {attempt}\n".encode(), attempt)
                daemon.change(task_id, "working", attempt=attempt)
                await asyncio.sleep(0.4)
            daemon.change(task_id, "completed")

        daemon.script = twice
        ran = aiosctl("run", "files.checksum", "--follow")
        assert ran.out == "stdout 1\nstdout 2\n"
        assert "stderr 1\n" in ran.err
        assert "stderr 2\n" in ran.err

    def test_interrupt_leaves_the_task_and_says_how_to_stop_it(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        async def interrupted(daemon: Daemon, task_id: str) -> None:
            daemon.change(task_id, "working", attempt=1)
            await asyncio.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

        daemon.script = interrupted
        ran = aiosctl("run", "files.checksum", "--follow")
        (task_id,) = daemon.tasks
        assert ran.status == 130
        assert f"'aiosctl cancel {task_id}' stops it" in ran.err
        assert daemon.tasks[task_id]["status"] == "working"
        assert not any(name == "Cancel" for name, _ in daemon.calls)

    def test_a_question_is_shown_with_how_to_answer_it(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        async def asking(daemon: Daemon, task_id: str) -> None:
            await asyncio.sleep(0.05)
            daemon.event(task_id, "task.input_required", prompt="Which\x1b[2J disk?")
            daemon.change(task_id, "completed")

        daemon.script = asking
        ran = aiosctl("run", "files.checksum", "--follow")
        (task_id,) = daemon.tasks
        assert f"It asks: Which disk?\n  answer: aiosctl answer {task_id} key=value" in ran.err


class TestExec:
    @pytest.mark.parametrize("words", [("--", "ls", "-l", "--json"), ("ls", "-l", "--json")])
    def test_the_command_is_an_argv(self, aiosctl: Aiosctl, daemon: Daemon, words: tuple[str, ...]) -> None:
        ran = aiosctl("exec", *words)
        (task,) = daemon.tasks.values()
        assert (task["capability_id"], task["arguments"]) == ("compat.command.run", {"argv": ["ls", "-l", "--json"]})
        assert ran.out == f"{task['task_id']}\n"


class TestList:
    def test_newest_first_with_a_head(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE, "completed")
        daemon.add(TWO, "working")
        head, second, first = aiosctl("list").out.splitlines()
        assert head.split() == ["TASK", "STATUS", "PHASE", "DONE", "CREATED", "CAPABILITY"]
        assert second.split() == [TWO, "working", "running", "-", "-", "files.checksum"]
        assert first.split()[:2] == [ONE, "completed"]

    def test_json(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE, "completed")
        found = aiosctl("list", "--json").json
        assert (found["total"], found["has_more"]) == (1, False)
        assert found["tasks"] == [
            {"task_id": ONE, "path": f"/org/aios/TaskManager/task/{ONE.replace('-', '_')}", "percent": -1, "created": 0,
             "capability_id": "files.checksum", "status": "completed", "phase": "completed", "uid": os.getuid()}
        ]  # fmt: skip

    def test_filters(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        aiosctl("list", "-s", "failed", "-s", "canceled", "-c", "files.*", "--all-users", "-n", "7", "--page", "3",
                "--sort", "priority", "-r")  # fmt: skip
        assert daemon.options("ListTasks") == {
            "status": ["failed", "canceled"], "capability_id": "files.*", "all_users": True, "limit": 7, "offset": 14,
            "sort_field": "priority", "order": "asc",
        }  # fmt: skip

    def test_whose_and_of_what(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        aiosctl("list", f"--session={SESSION}", "--parent=last", "--tag=shopping", "--user=root")
        assert daemon.options("ListTasks") == {
            "session_id": SESSION, "parent_task_id": ONE, "tag": "shopping", "uid": 0, "limit": 50, "offset": 0,
            "sort_field": "created_at", "order": "desc",
        }  # fmt: skip
        assert aiosctl("list", "--user=no such user").status == 64

    def test_times_ask_the_history(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        aiosctl("list", "--since", "2026-03-01T10:00:00Z", "--until", "2026-03-02T10:00:00+00:00")
        assert daemon.options("ListHistory") == {
            "limit": 50, "offset": 0, "start_time": 1772359200000000, "end_time": 1772445600000000,
        }  # fmt: skip

    def test_pages(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        for number in range(250):
            daemon.add(f"task-{number:026d}")
        assert "50 of 250 tasks; the next page: --page 2" in aiosctl("list").err
        assert len(aiosctl("list", "--all").out.splitlines()) == 251

    def test_nothing(self, aiosctl: Aiosctl) -> None:
        ran = aiosctl("list")
        assert (ran.out, ran.err) == ("", "No tasks.\n")

    def test_colours_when_wanted(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE, "failed")
        assert "\x1b[31;1mfailed\x1b[0m" in aiosctl("list", "--color=always").out
        assert "\x1b" not in aiosctl("list").out


class TestShow:
    def test_everything_about_a_task(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(
            ONE, "failed", reason="oom-kill", error={"message": "killed\x1b]0;owned\x07"},
            run={"unit": "aios-task-r.scope", "control_group": "/aios.slice/aios-tasks.slice/aios-task-r.scope",
                 "limits": {"memory_max": 268435456, "cpu_quota_percent": 20, "tasks_max": 16}},
            exit={"signal": "SIGKILL", "oom_kill": True, "usage": {"cpu_usec": 1500000, "memory_peak": 268435456}},
            result={"a": [1]},
            state_history=[{"state": "pending", "phase": "queued", "timestamp": "2026-03-01T10:00:00Z"}],
        )  # fmt: skip
        out = aiosctl("show", "last").out
        for line in (
            f"        Task: {ONE} — Checksums",
            "      Status: failed, reason oom-kill, killed",
            "        Unit: aios-task-r.scope",
            "      CGroup: /aios.slice/aios-tasks.slice/aios-task-r.scope",
            "      Limits: memory_max 256M, cpu_quota_percent 20%, tasks_max 16",
            "    Ended by: SIGKILL, for want of memory",
            "        Used: CPU 1.5s, memory peak 256M",
        ):
            assert line in out.splitlines()
        assert "\x1b" not in out
        assert "pending (queued)" in out

    def test_where_it_stands_and_what_it_waits_for(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        """Seed 003's structured summary, and seed 000's request for an authentication."""
        daemon.add(
            ONE, "auth_required",
            summary={"summary": "the retry loops on 401", "progress_percent": 60, "current_step": "analyze_retry_logic",
                     "next_step": "mend it", "risk": "medium"},
            auth_request={"type": "oauth2", "provider": "google", "reason": "to read your files"},
        )  # fmt: skip
        lines = aiosctl("show", ONE).out.splitlines()
        for line in (
            "    Progress: 60%",
            "     Summary: the retry loops on 401",
            "        Step: analyze_retry_logic",
            "   Next step: mend it",
            "        Risk: medium",
            f"   Waits for: an authentication (oauth2): aiosctl auth {ONE}",
            "              google",
            "              to read your files",
        ):
            assert line in lines

    def test_json_is_the_task(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        assert aiosctl("show", ONE, "--json").json == daemon.tasks[ONE]

    def test_history_on_request(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        aiosctl("show", ONE, "--history")
        assert daemon.options("GetTask") == {"include_history": True}


class TestIds:
    @pytest.mark.parametrize("word", [THREE, THREE[:12], THREE[5:12], "last"])
    def test_what_names_a_task(self, aiosctl: Aiosctl, daemon: Daemon, word: str) -> None:
        for task_id in (ONE, TWO, THREE):
            daemon.add(task_id)
        assert aiosctl("show", word, "--json").json["task_id"] == THREE

    def test_a_token_id_is_exact(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add("task-1000-build")
        daemon.add("task-1000-build2")
        assert aiosctl("show", "task-1000-build", "--json").json["task_id"] == "task-1000-build"

    def test_an_ambiguous_beginning_names_the_candidates(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        daemon.add(TWO)
        ran = aiosctl("show", "task-01hzy")
        assert ran.status == 64
        assert ONE in ran.err
        assert TWO in ran.err

    @pytest.mark.parametrize(("word", "status"), [("task-nope", 66), ("last", 66), ("../x", 64), ("", 64)])
    def test_what_does_not(self, aiosctl: Aiosctl, word: str, status: int) -> None:
        assert aiosctl("show", word).status == status


class TestLogs:
    @pytest.fixture(autouse=True)
    def written(self, daemon: Daemon) -> None:
        daemon.add(ONE, "completed", attempt=2)
        for attempt in (1, 2):
            daemon.log(ONE, "stdout", b"out \x1b[31m\xff%d" % attempt, attempt)
            daemon.log(ONE, "stderr", b"err %d" % attempt, attempt)

    @pytest.mark.parametrize(
        ("words", "out", "err"),
        [
            ((), b"out \x1b[31m\xff2", "err 2"),
            (("--stdout",), b"out \x1b[31m\xff2", ""),
            (("--stderr",), b"", "err 2"),
            (("--attempt=1",), b"out \x1b[31m\xff1", "err 1"),
            (("-f",), b"out \x1b[31m\xff2", "err 2"),
            (("-f", "--attempt=1"), b"out \x1b[31m\xff1", "err 1"),
        ],
    )
    def test_byte_for_byte(self, aiosctl: Aiosctl, words: tuple[str, ...], out: bytes, err: str) -> None:
        ran = aiosctl("logs", ONE, *words)
        assert (ran.status, ran.raw, ran.err) == (0, out, err)

    def test_json(self, aiosctl: Aiosctl) -> None:
        assert aiosctl("logs", ONE, "--stderr", "--json").json == {
            "kind": "output", "stream": "stderr", "encoding": "utf-8", "text": "err 2",
        }  # fmt: skip

    def test_no_descriptor_is_left(self, aiosctl: Aiosctl) -> None:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no Path is wanted
        for words in ((), ("-f",)):
            aiosctl("logs", ONE, *words)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above

    def test_none_yet(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(TWO, "pending", attempt=0)
        ran = aiosctl("logs", TWO)
        assert (ran.status, ran.err) == (65, "aiosctl: There is no log yet\n")


class TestWait:
    @pytest.mark.parametrize(
        ("task", "status"),
        [
            ({"status": "completed"}, 0),
            ({"status": "canceled", "reason": "user_request"}, 130),
            ({"status": "failed", "reason": "exit-status", "exit": {"exit_status": 3}}, 3),
            ({"status": "failed", "reason": "input-timeout", "exit": {"signal": "SIGKILL"}}, 124),
            ({"status": "failed", "reason": "auth-timeout"}, 124),
            ({"status": "failed", "reason": "first-frame-timeout", "exit": {"exit_status": 0}}, 124),
            ({"status": "failed", "reason": "signal", "exit": {"signal": "SIGSEGV"}}, 139),
            ({"status": "failed", "reason": "oom-kill", "exit": {"signal": "SIGKILL", "oom_kill": True}}, 137),
            ({"status": "failed", "reason": "timeout", "exit": {"signal": "SIGTERM"}}, 124),
            ({"status": "failed", "reason": "launch"}, 126),
            ({"status": "failed", "reason": "capability-missing"}, 127),
            ({"status": "failed", "reason": "permission-denied"}, 77),
            ({"status": "failed", "reason": "reported", "exit": {"exit_status": 0}}, 1),
            ({"status": "failed", "reason": "lost"}, 1),
        ],
    )
    def test_exits_with_the_tasks_status(
        self, aiosctl: Aiosctl, daemon: Daemon, task: dict[str, str], status: int
    ) -> None:
        daemon.add(ONE, **task)
        assert aiosctl("wait", ONE).status == status
        assert aiosctl("wait", ONE, "--json").json["status"] == task["status"]

    def test_several(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE, "completed")
        daemon.add(TWO, "failed", reason="timeout")
        daemon.add(THREE, "canceled")
        ran = aiosctl("wait", ONE, TWO, THREE)
        assert ran.status == 124
        assert len(ran.err.splitlines()) == 3

    def test_no_longer_than(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        ran = aiosctl("wait", ONE, "--timeout=50ms", "--json")
        assert ran.status == 75
        assert ran.json["error"] == {
            "message": "The time passed before the task ended",
            "data": {"error_id": "AIOSCTL-TRY-AGAIN", "exit_status": 75, "hint": "it goes on running"},
        }


class TestSteering:
    @pytest.mark.parametrize(
        ("verb", "before", "after", "said"),
        [
            ("cancel", "working", "canceled", "canceled"),
            ("pause", "working", "paused", "paused"),
            ("resume", "paused", "working", "resumed"),
        ],
    )
    def test_changes_the_task(
        self, aiosctl: Aiosctl, daemon: Daemon, verb: str, before: str, after: str, said: str
    ) -> None:
        daemon.add(ONE, before)
        ran = aiosctl(verb, "last")
        assert (ran.status, ran.out, ran.err) == (0, "", f"{ONE} {said}\n")
        assert daemon.tasks[ONE]["status"] == after

    def test_one_that_fails_does_not_keep_the_others_from_it(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        ran = aiosctl("cancel", TWO, ONE, "--json")
        assert ran.status == 66
        assert daemon.tasks[ONE]["status"] == "canceled"
        tasks = ran.json["tasks"]
        assert isinstance(tasks, list)
        assert tasks[0]["error"]["data"]["error_id"] == "AIOS-TASK-NOT-FOUND"
        assert tasks[1] == {"task_id": ONE}

    def test_reason(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        aiosctl("cancel", ONE, "--reason", "too loud")
        assert daemon.tasks[ONE]["reason"] == "too loud"

    def test_priority(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE, "pending")
        assert aiosctl("priority", ONE, "urgent").status == 0
        assert daemon.tasks[ONE]["priority"] == "urgent"
        assert aiosctl("priority", ONE, "utmost").status == 64

    def test_retry(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE, "failed")
        ran = aiosctl("retry", ONE)
        assert ran.out.strip() in daemon.tasks.keys() - {ONE}
        daemon.script = failing_life
        assert aiosctl("retry", ONE, "--wait").status == 7

    def test_answer_is_typed_by_the_questions_schema(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        schema: JsonObject = {
            "type": "object",
            "properties": {"count": {"type": "integer"}, "yes": {"type": "boolean"}},
        }
        daemon.add(ONE, "input_required", question={"interaction": 1, "prompt": "How many?", "schema": schema})
        assert aiosctl("answer", ONE, "count=3", "yes=no").status == 0
        assert daemon.tasks[ONE]["answered"] == {"count": 3, "yes": False}
        assert aiosctl("answer", ONE, "--json", '{"count": 4}').status == 0
        assert daemon.tasks[ONE]["answered"] == {"count": 4}
        assert aiosctl("answer", ONE).status == 64


class TestWatch:
    def test_one_task_to_its_end(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE, "completed")
        ran = aiosctl("watch", ONE)
        assert (ran.status, ran.out) == (0, "")
        assert ran.err.splitlines()[-1] == f"{ONE} completed"

    def test_all_tasks_a_line_for_each_change(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE, "pending")
        wait = daemon._ListTasks

        def then_change(**options: int) -> object:
            async def soon() -> None:
                daemon.emit("TaskNew", TWO, "/x", os.getuid(), "pending")
                daemon.emit("TaskNew", THREE, "/x", os.getuid() + 1, "pending")  # somebody else's: not shown
                daemon.change(ONE, "working")
                daemon.emit("TaskRemoved", TWO, "/x", os.getuid())
                await asyncio.sleep(0.1)
                os.kill(os.getpid(), signal.SIGINT)

            daemon._scripts.add(asyncio.ensure_future(soon()))
            return wait(**options)

        daemon._ListTasks = then_change  # type: ignore[method-assign, assignment]  # a scripted answer
        ran = aiosctl("watch")
        assert ran.status == 130
        assert [line.split(" ", 1)[1] for line in ran.out.splitlines()] == [
            f"{TWO} new, pending", f"{ONE} pending -> working (running)", f"{TWO} removed",
        ]  # fmt: skip


class TestArtifacts:
    @pytest.fixture(autouse=True)
    def made(self, daemon: Daemon) -> None:
        daemon.add(ONE, "completed")
        daemon.artifacts["art-1"] = b"\x1b[31m\x00data"

    def test_list(self, aiosctl: Aiosctl) -> None:
        assert aiosctl("artifact", "list", ONE).out.splitlines()[1].split() == [
            "art-1", "file", "text/plain", "10B", "../art-1.txt",
        ]  # fmt: skip

    def test_get(self, aiosctl: Aiosctl) -> None:
        assert aiosctl("artifact", "get", "art-1", "--json").json["name"] == "../art-1.txt"
        assert aiosctl("artifact", "get", "art-2").status == 66

    def test_cat_is_byte_for_byte(self, aiosctl: Aiosctl) -> None:
        assert aiosctl("artifact", "cat", "art-1").raw == b"\x1b[31m\x00data"

    def test_save_stays_in_the_directory(
        self, aiosctl: Aiosctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = tmp_path / "here"
        here.mkdir()
        monkeypatch.chdir(here)
        assert aiosctl("artifact", "save", "art-1").out == "art-1.txt\n"
        assert (here / "art-1.txt").read_bytes() == b"\x1b[31m\x00data"
        assert aiosctl("artifact", "save", "art-1").status == 73
        assert aiosctl("artifact", "save", "art-1", "--force").status == 0
        assert aiosctl("artifact", "save", "art-1", "-o", str(here / "no" / "where")).status == 73
        assert os.listdir(here) == ["art-1.txt"]  # noqa: PTH208 - names only


class TestCapabilities:
    def test_list(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.problems.append({"file": "/etc/aios/capabilities.d/a.toml", "line": 3, "message": "bad"})
        ran = aiosctl("capability", "list", "files.*")
        assert [line.split(maxsplit=2) for line in ran.out.splitlines()] == [
            ["CAPABILITY", "LEVEL", "TITLE"], ["files.checksum", "low", "Checksums of a tree"],
        ]  # fmt: skip
        assert ran.err == "/etc/aios/capabilities.d/a.toml:3: bad\n"

    def test_show(self, aiosctl: Aiosctl) -> None:
        out = aiosctl("capability", "show", "files.checksum").out
        assert "                 level: low\n" in out
        assert "            cancelable: yes\n" in out
        ran = aiosctl("capability", "show", "no.such")
        assert (ran.status, ran.err) == (
            66, "aiosctl: Capability not found: no.such\n  'aiosctl capability list' shows what is installed\n",
        )  # fmt: skip

    def test_check_needs_no_daemon(self, aiosctl: Aiosctl, daemon: Daemon, tmp_path: Path) -> None:
        good = tmp_path / "a.good.toml"
        good.write_text('id = "a.good"\ntitle = "T"\ndescription = "D"\nlevel = "public"\nexec = ["/usr/bin/true"]\n')
        bad = tmp_path / "a.bad.toml"
        bad.write_text('id = "a.bad"\ntitle = "T"\ndescription = "D"\nlevel = "huge"\nexec = ["/usr/bin/true"]\n')
        assert aiosctl("capability", "check", str(good)).status == 0
        ran = aiosctl("capability", "check", str(bad), "--json")
        assert ran.status == 65
        assert ran.json["valid"] is False
        (problem,) = ran.rows("problems")
        assert (problem["line"], problem["key"]) == (4, "level")
        assert f"{bad}:4: error: level: " in aiosctl("capability", "check", str(bad)).err
        assert aiosctl("capability", "check", str(tmp_path / "none")).status == 66
        assert daemon.calls == []


class TestService:
    def test_status(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.problems.append({"file": "/a.toml", "message": "bad\x1b[1m"})
        assert aiosctl("status").out.splitlines() == [
            "     aiosd: ● ready, version 0.1.0, protocol 1.0",
            "     Tasks: 1 running, 2 queued, 0 waiting, 3 total",
            "    Limits: 10 at once, 3 of one capability, 100 in the queue",
            "     Store: /var/lib/aiosd/tasks.db, 12K",
            "  Launcher: connected, systemd 257",
            "   Problem: /a.toml: bad",
        ]
        assert aiosctl("status", "--json").json["state"] == "ready"

    def test_reload(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        assert aiosctl("reload", "--json").json == {"problems": []}
        assert ("Reload", ({},)) in daemon.calls


class TestErrors:
    @pytest.mark.parametrize("kind", list(ErrorKind), ids=lambda kind: kind.name)
    def test_the_daemons_own(self, aiosctl: Aiosctl, daemon: Daemon, kind: ErrorKind) -> None:
        daemon.refusals["GetStatus"] = kind
        ran = aiosctl("status")
        assert ran.status == kind.value.exit_status
        assert ran.err.startswith(f"aiosctl: {kind.value.message}\n")
        error = aiosctl("status", "--json").json["error"]
        assert isinstance(error, dict)
        assert (error["code"], error["data"]["error_id"]) == (kind.value.code, kind.value.error_id)

    @pytest.mark.parametrize(
        "words",
        [
            ["nosuch"],
            ["list", "--nosuch"],
            ["list", "-n", "0"],
            ["run"],
            ["priority", ONE],
            ["run", "a.b", "--timeout", "x"],
        ],
    )
    def test_usage(self, aiosctl: Aiosctl, words: list[str]) -> None:
        ran = aiosctl(*words)
        assert (ran.status, ran.out) == (64, "")
        assert ran.err.startswith("aiosctl: ")
        assert "--help' says how" in ran.err
        error = aiosctl(*words, "--json").json["error"]
        assert isinstance(error, dict)
        assert error["data"]["error_id"] == "AIOSCTL-USAGE"

    def test_an_error_from_the_daemon_cannot_steer_the_terminal(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add("task-x")
        ran = aiosctl("run", "a.b", "--arguments", '{"a": "\x1b"}')
        assert ran.status == 65
        assert "\x1b" not in ran.err


def test_every_verb_loads_and_has_help_and_the_common_options(aiosctl: Aiosctl) -> None:
    for verb in VERBS:
        help_text = aiosctl(verb, "--help").out
        for option in ("--json", "--color", "--no-ask-password"):
            assert option in help_text, verb
    assert aiosctl().out == aiosctl("--help").out


class TestWebhook:
    URL = "https://client.example.com/aios/webhook"

    def test_a_token_goes_by_descriptor_and_never_on_the_bus(
        self, aiosctl: Aiosctl, daemon: Daemon, tmp_path: Path
    ) -> None:
        daemon.add(ONE)
        token = tmp_path / "token"
        token.write_text("webhook-secret-token\n")
        ran = aiosctl("webhook", "add", ONE, self.URL, "--event=status", "--event=failed", "--token-file", str(token))
        assert (ran.status, ran.out) == (0, "hook-1\n")
        assert [json.loads(text) for text in daemon.secrets] == [{"type": "bearer", "token": "webhook-secret-token"}]
        assert daemon.options("SubscribeWebhook") == {"authentication": 0, "max_retries": 3, "retry_delay_ms": 1000}
        assert "webhook-secret-token" not in str(daemon.calls)

    def test_list_shows_why_one_is_parked_and_remove_takes_it_away(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        assert aiosctl("webhook", "add", ONE, self.URL, "--no-token").status == 0
        assert daemon.secrets == []
        listed = aiosctl("webhook", "list").out.splitlines()
        assert listed[0].split() == ["WEBHOOK", "STATE", "WAITING", "SENT", "URL", "ERROR"]
        assert listed[1].split()[:5] == ["hook-1", "parked", "3", "4", self.URL]
        assert "\x1b" not in listed[1]
        assert json.loads(aiosctl("webhook", "list", ONE, "--json").out)["webhooks"][0]["webhook_id"] == "hook-1"
        assert aiosctl("webhook", "resume", "hook-1").err == "hook-1 resumed\n"
        assert aiosctl("webhook", "remove", ONE, self.URL).status == 0
        assert aiosctl("webhook", "list").err == "No webhooks.\n"

    def test_without_terminal_or_file_there_is_no_token(self, aiosctl: Aiosctl, daemon: Daemon) -> None:
        daemon.add(ONE)
        ran = aiosctl("webhook", "add", ONE, self.URL)
        assert ran.status == 64
        assert "--token-file" in ran.err
