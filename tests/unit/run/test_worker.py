"""`aiosd.worker` and `aios-task`, as programs under a real shim."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aiosd
from aiosd.worker.oauth import OAuth2, OAuthError
from tests.unit.run.shimrig import PYTHON

if TYPE_CHECKING:
    from tests.unit.run.shimrig import Rig, Run

ROOT = str(Path(aiosd.__file__).parents[1])


def worker(rig: Rig, code: str) -> Run:
    """A program that uses the library."""
    return rig.start(rig.python(f"import sys; sys.path.insert(0, {ROOT!r})\nfrom aiosd.worker import Task\n{code}"))


def script(rig: Rig, text: str) -> Run:
    """A shell script that uses the command."""
    start = f"import sys; sys.path.insert(0, '{ROOT}'); from aiosd.worker.command import main; sys.exit(main())"
    return rig.start(rig.spec(["/bin/sh", "-c", f'task() {{ {PYTHON} -I -S -c "{start}" "$@"; }}\n{text}']))


def said(run: Run) -> list[tuple[str, object]]:
    return [(str(event.type), event.payload) for event in run.events() if event.type != "started"]


def test_everything_that_a_program_can_say(rig: Rig) -> None:
    run = worker(
        rig,
        "with Task.connect() as task:\n"
        "  task.progress(50, 'half', current_step=1, total_steps=2)\n"
        "  task.step('read', 'started')\n  task.tool_call('curl', 'requested', url='x')\n"
        "  task.summary('well', risk='low')\n  task.log('hello', 'warning')\n"
        "  open('f', 'w').write('content')\n"
        "  task.artifact('k', path='f', mime_type='text/plain')\n"
        "  task.complete({'depth': task.arguments['depth'], 'attempt': task.attempt, 'm': task.metadata})\n",
    ).go({"depth": 3})
    assert run.wait().exit_status == 0, run.stderr()
    kinds, payloads = zip(*said(run), strict=True)
    assert kinds == (*["processing"] * 4, "log", "artifact", "task_completion")
    progress = {"percent": 50, "current_step": 1, "total_steps": 2, "message": "half"}
    assert payloads[0] == {"progress": progress}
    assert payloads[2] == {"tool_call": {"name": "curl", "status": "requested", "url": "x"}}
    assert payloads[6] == {"result": {"depth": 3, "attempt": 2, "m": {"colour": "blue"}}}
    assert [event.index for event in run.events()[1:]] == list(range(7))
    assert run.paths.blobs.read_bytes() == b"content"


def test_pictures_and_sounds(rig: Rig) -> None:
    """Seed 000's parts with content: image.uri, image.mime_type; audio.uri, audio.duration_ms; video likewise."""
    run = worker(
        rig,
        "with Task.connect() as task:\n"
        "  for kind in ('image', 'audio', 'video'):\n"
        "    open(kind, 'w').write(kind)\n"
        "    length = None if kind == 'image' else 7\n"
        "    task.artifact(kind, path=kind, kind=kind, mime_type=kind + '/x', duration_ms=length)\n"
        "  task.complete()\n",
    ).go()
    assert run.wait().exit_status == 0, run.stderr()
    assert [parts_of(payload) for kind, payload in said(run) if kind == "artifact"] == [
        [("image", {"mime_type": "image/x", "name": "image"})],
        [("audio", {"mime_type": "audio/x", "duration_ms": 7, "name": "audio"})],
        [("video", {"mime_type": "video/x", "duration_ms": 7, "name": "video"})],
    ]
    assert run.paths.blobs.read_bytes() == b"imageaudiovideo"


def parts_of(artifact: object) -> list[tuple[str, dict[str, object]]]:
    """Each part's kind, and what is said of it."""
    assert isinstance(artifact, dict)
    return [
        (kind, {name: value for name, value in described.items() if name != "blob"})
        for part in artifact["parts"]
        for kind, described in part.items()
    ]


def test_it_says_why_it_cannot_be_paused_or_canceled_now(rig: Rig) -> None:
    run = worker(
        rig,
        "import time\nwith Task.connect() as task:\n"
        "  task.cannot_cancel = 'in the middle of a payment'\n  task.log('up')\n"
        "  while not task.canceled:\n    task.poll()\n    time.sleep(0.01)\n",
    ).go()
    run.wait_for("log")
    run.control.send(json.dumps({"type": "can_cancel", "id": "c1"}).encode())
    refused = run.wait_for("can_cancel").payload
    assert refused == {"id": "c1", "allowed": False, "reason": "in the middle of a payment"}
    run.control.send(json.dumps({"type": "can_pause", "id": "p1"}).encode())
    assert run.wait_for("can_pause").payload == {"id": "p1", "allowed": True, "reason": ""}
    run.say("cancel", reason="user_request", grace_ms=10_000)
    run.wait()


def test_an_exception_fails_the_task_and_keeps_its_traceback_to_itself(rig: Rig) -> None:
    run = worker(rig, "with Task.connect() as task:\n  raise ValueError('no such disk')\n").go()
    assert run.wait().exit_status == 1
    ((kind, payload),) = said(run)
    assert kind == "task_failed"
    assert payload == {
        "message": "ValueError: no such disk",
        "reason": "exception",
        "retryable": True,
        "data": None,
    }
    assert b"Traceback" in run.stderr()


def test_a_question_waits_for_its_answer(rig: Rig) -> None:
    run = worker(
        rig,
        "with Task.connect() as task:\n  task.complete({'got': task.ask('Name?', schema={'type': 'object'})})\n",
    ).go()
    asked = run.wait_for("task_interaction").payload
    assert (asked["interaction"], asked["prompt"], asked["schema"]) == (1, "Name?", {"type": "object"})
    run.say("input", interaction=1, input={"name": "Ada"})
    assert run.wait().exit_status == 0, run.stderr()
    assert said(run)[-1] == ("task_completion", {"result": {"got": {"name": "Ada"}}})


def test_what_it_says_can_have_metadata_of_its_own(rig: Rig) -> None:
    run = worker(
        rig,
        "with Task.connect() as task:\n  task.ask('?', metadata={'a': 1})\n  task.fail('no', metadata={'b': 2})\n",
    ).go()
    assert run.wait_for("task_interaction").payload["metadata"] == {"a": 1}
    run.say("input", interaction=1, input={})
    run.wait()
    failed = said(run)[-1][1]
    assert isinstance(failed, dict)
    assert failed["metadata"] == {"b": 2}


def test_a_checkpoint_pauses_resumes_and_cancels(rig: Rig) -> None:
    run = worker(
        rig,
        "import time\nwith Task.connect() as task:\n  task.log('up')\n"
        "  while True:\n    task.checkpoint()\n    print('x', flush=True)\n    time.sleep(0.01)\n",
    ).go()
    run.wait_for("log")
    run.control.send(json.dumps({"type": "pause", "id": "p1"}).encode())
    assert run.wait_for("paused").payload == {"id": "p1"}
    before = run.stdout()
    time.sleep(0.1)
    assert run.stdout() == before, "a paused program goes on"
    run.say("resume")
    end = time.monotonic() + 30
    while run.stdout() == before and time.monotonic() < end:
        time.sleep(0.01)
    assert len(run.stdout()) > len(before)
    run.say("cancel", reason="user_request", grace_ms=10_000)
    record = run.wait()
    assert (record.exit_status, record.stopped_by) == (1, "cancel")
    payload = said(run)[-1][1]
    assert isinstance(payload, dict)
    assert (payload["message"], payload["reason"]) == ("user_request", "canceled")
    assert b"Traceback" not in run.stderr()


def test_outside_a_task_it_says_so(rig: Rig) -> None:
    run = rig.run([PYTHON, "-I", "-c", f"import sys; sys.path.insert(0, '{ROOT}'); from aiosd.worker import Task, "
                   "WorkerError\nimport os; os.environ.pop('AIOS_TASK_FD')\n"
                   "try: Task.connect()\nexcept WorkerError as e: print(e)\n"])  # fmt: skip
    assert run.stdout().startswith(b"AIOS_TASK_FD names no socket")


def test_a_shell_script_speaks_too(rig: Rig) -> None:
    run = script(
        rig,
        'set -e\ntask progress 40 "almost"\ntask log --level error "oh"\necho hi > f\ntask artifact f --mime-type a/b\n'
        'answer=$(task ask "Sure?" --schema \'{"type": "object"}\')\n'
        'task complete "{\\"depth\\": $(task arguments depth), \\"answer\\": $answer}"\n',
    ).go({"depth": 7})
    number = run.wait_for("task_interaction").payload["interaction"]
    run.say("input", interaction=number, input={"yes": True})
    assert run.wait().exit_status == 0, run.stderr()
    told = said(run)
    assert told[0] == ("processing", {"progress": {"percent": 40, "message": "almost"}})
    assert told[1] == ("log", {"level": "error", "message": "oh"})
    assert told[-1] == ("task_completion", {"result": {"depth": 7, "answer": {"yes": True}}})
    assert run.paths.blobs.read_bytes() == b"hi\n"


def test_a_shell_script_tells_its_steps_its_tools_and_where_it_stands(rig: Rig) -> None:
    """Seed 003's steps, tool calls and structured summary; seed 000's counted progress and kinds of parts."""
    run = script(
        rig,
        "set -e\ntask step run_tests\ntask step run_tests failed --summary two\ntask tool git\ntask tool git finished\n"
        "task summary 'the retry loops' --percent 60 --step analyze --next fix --risk medium\n"
        "task progress 50 half --step 2 --steps 4\n"
        "echo x > f\ntask artifact f --kind audio --duration-ms 7\n"
        "task ask Which? --option red --option green >/dev/null\ntask fail no --reason conflict\n",
    ).go()
    asked = run.wait_for("task_interaction").payload
    assert asked["options"] == ["red", "green"]
    run.say("input", interaction=asked["interaction"], input={"choice": "red"})
    assert run.wait().exit_status == 0, run.stderr()
    told = [payload for kind, payload in said(run) if kind == "processing"]
    assert told == [
        {"step": {"name": "run_tests", "status": "started", "summary": ""}},
        {"step": {"name": "run_tests", "status": "failed", "summary": "two"}},
        {"tool_call": {"name": "git", "status": "requested", "summary": ""}},
        {"tool_call": {"name": "git", "status": "finished", "summary": ""}},
        {"summary": {"summary": "the retry loops", "progress_percent": 60.0, "current_step": "analyze",
                     "next_step": "fix", "risk": "medium"}},
        {"progress": {"percent": 50.0, "message": "half", "current_step": 2, "total_steps": 4}},
    ]  # fmt: skip
    described = {"mime_type": "application/octet-stream", "duration_ms": 7, "name": "f"}
    assert parts_of(run.wait_for("artifact").payload) == [("audio", described)]
    assert said(run)[-1] == ("task_failed", {"message": "no", "reason": "conflict", "retryable": False})


@pytest.mark.parametrize(
    ("call", "status"),
    [("task", 64), ("task progress fast", 64), ("task complete {", 64), ("task arguments missing", 1)],
)
def test_wrong_usage_has_an_exit_status_and_says_nothing(rig: Rig, call: str, status: int) -> None:
    run = script(rig, call).go({"depth": 7})
    assert run.wait().exit_status == status
    assert said(run) == []
    assert run.stderr()


def test_an_authentication_waits_for_what_the_person_gives(rig: Rig) -> None:
    run = worker(
        rig,
        "with Task.connect() as task:\n"
        "  given = task.authenticate('password', provider='mail', reason='to send', timeout_ms=5000)\n"
        "  task.complete({'names': sorted(given), 'length': len(given['password'])})\n",
    ).go()
    asked = run.wait_for("task_interaction").payload
    assert (asked["interaction"], asked["kind"]) == (1, "auth")
    assert asked["auth_request"] == {"type": "password", "provider": "mail", "reason": "to send", "timeout_ms": 5000}
    secret = "correct horse battery staple"  # noqa: S105  the test's own
    run.say("authentication", interaction=1, input={"type": "password", "username": "u", "password": secret})
    assert run.wait().exit_status == 0, run.stderr()
    assert said(run)[-1] == ("task_completion", {"result": {"names": ["password", "type", "username"], "length": 28}})
    assert secret not in str(run.events())


def test_an_oauth2_request_has_a_challenge_and_keeps_its_verifier() -> None:
    # RFC 7636, appendix B: verifier and challenge.
    flow = OAuth2("https://provider.example/authorize", "https://provider.example/token", client_id="c")
    flow._verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    request = flow.request("Provider", ["a", "b"], reason="why")
    assert request["code_challenge"] == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    assert request["code_challenge_method"] == "S256"
    assert flow._verifier not in str(request)
    with pytest.raises(OAuthError, match="state"):
        flow.exchange({"authorization_code": "x", "state": "another"})


@pytest.mark.parametrize("approved", [True, False])
def test_a_program_hears_whether_it_may(rig: Rig, *, approved: bool) -> None:
    run = worker(
        rig,
        "with Task.connect() as task:\n"
        "  may = task.approve('dangerous_command', 'rm -rf build-cache', 'high', timeout_ms=9000)\n"
        "  task.complete({'may': may})\n",
    ).go()
    asked = run.wait_for("task_interaction").payload
    wanted = {"kind": "dangerous_command", "summary": "rm -rf build-cache", "risk_level": "high"}
    assert (asked["kind"], asked["approval"], asked["timeout_ms"]) == ("approval", wanted, 9000)
    run.say("input", interaction=asked["interaction"], input={"approved": approved, "decision": "approve"})
    assert run.wait().exit_status == 0, run.stderr()
    assert said(run)[-1] == ("task_completion", {"result": {"may": approved}})


@pytest.mark.parametrize(("given", "result"), [({"approved": True}, "yes"), ({"approved": False}, "no"), ({}, "no")])
def test_a_script_goes_on_only_with_a_yes(rig: Rig, given: dict[str, bool], result: str) -> None:
    run = script(
        rig,
        'if task approve dangerous_command "rm -rf build-cache" --risk high; then r=yes; else r=no; fi\n'
        'task complete "{\\"r\\": \\"$r\\"}"\n',
    ).go()
    asked = run.wait_for("task_interaction").payload
    wanted = {"kind": "dangerous_command", "summary": "rm -rf build-cache", "risk_level": "high"}
    assert (asked["kind"], asked["approval"]) == ("approval", wanted)
    run.say("input", interaction=asked["interaction"], input=given)
    assert run.wait().exit_status == 0, run.stderr()
    assert run.stdout() == b""
    assert said(run)[-1] == ("task_completion", {"result": {"r": result}})
