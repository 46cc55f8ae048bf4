"""`aios-task worker`: a worker made of shell scripts. `run` is the worker, the other verbs are for the command it runs.

    aios-task worker run worker_1 --capability git -- ./investigate.sh

For each assignment the command is started with its request in the file `AIOS_REQUEST`. Its exit status ends the
assignment, unless it has ended it itself: 0 completes it, anything else is a failure. When the assignment is taken away
the command's process group is terminated; while it is paused, it is stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.client.messages import CallError, ProtocolError
from aiosd.client.plain import Client
from aiosd.worker.remote import SOCKETS, Assignment, RemoteWorker, TakenAway, read_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.model.jsontext import JsonObject, JsonValue

USAGE, UNAVAILABLE, REFUSED = 64, 69, 1
GRACE = 5.0
"""Seconds that a command has to end when its assignment is taken away."""
LOOK = 0.5
"""Seconds between looks at a command that runs."""
WAIT_MS = 10_000


class Misuse(Exception):
    """Not called as it has to be; `str()` says how."""


def add_verbs(parser: argparse.ArgumentParser, kind: type[argparse.ArgumentParser]) -> None:
    """The verbs under `aios-task worker`."""
    verbs = parser.add_subparsers(dest="word", required=True, metavar="VERB", parser_class=kind)
    run = verbs.add_parser("run", help="be a worker: run a command for each assignment")
    run.add_argument("worker_id")
    run.add_argument("--capability", action="append", default=[], metavar="WORD")
    run.add_argument("--serve-all", action="store_true", help="take every user's tasks, not only this user's")
    run.add_argument("--sockets", type=Path, default=SOCKETS, help=argparse.SUPPRESS)
    run.add_argument("--once", action="store_true", help="end after the first assignment")
    run.add_argument("command", nargs="+")
    request = verbs.add_parser("request", help="print the request, or one value of it")
    request.add_argument("key", nargs="?")
    step = verbs.add_parser("step", help="a step of the work")
    step.add_argument("name")
    step.add_argument("status", nargs="?", default="started", choices=["started", "finished", "failed"])
    step.add_argument("--summary", default="")
    progress = verbs.add_parser("progress", help="how far it is")
    progress.add_argument("percent", type=float)
    progress.add_argument("message", nargs="?", default="")
    verbs.add_parser("report", help="a whole report, as JSON").add_argument("report", metavar="JSON")
    artifact = verbs.add_parser("artifact", help="hand over the text of a file, or of standard input (-)")
    artifact.add_argument("key")
    artifact.add_argument("file", nargs="?", default="-")
    ask = verbs.add_parser("ask", help="ask the person; prints the answer as JSON")
    ask.add_argument("prompt")
    ask.add_argument("--schema", default="null", metavar="JSON")
    approve = verbs.add_parser("approve", help="ask whether it may do something; succeeds only with a yes")
    approve.add_argument("kind")
    approve.add_argument("summary")
    approve.add_argument("--risk", default="medium", choices=["public", "low", "medium", "high", "critical"])
    verbs.add_parser("complete", help="it is done").add_argument("result", nargs="?", default="{}", metavar="JSON")
    fail = verbs.add_parser("fail", help="it could not be done")
    fail.add_argument("message")
    fail.add_argument("--final", action="store_true", help="another attempt would not help")


def main(arguments: argparse.Namespace) -> int:
    """One of them; its exit status."""
    try:
        return _run(arguments) if arguments.word == "run" else _word(arguments)
    except Misuse as error:
        return _complain(str(error), USAGE)
    except (CallError, TakenAway) as error:
        return _complain(str(error), REFUSED)
    except (OSError, ProtocolError) as error:
        return _complain(f"aiosd cannot be reached: {error}", UNAVAILABLE)


def _complain(message: str, status: int) -> int:
    sys.stderr.write(f"aios-task: {message}\n")
    return status


# -- the worker


def _run(arguments: argparse.Namespace) -> int:
    if shutil.which(arguments.command[0]) is None:
        raise Misuse(f"{arguments.command[0]}: there is no such command that can be run")
    serves = "all" if arguments.serve_all else "own"
    worker = RemoteWorker(
        arguments.worker_id, capabilities=arguments.capability, serves=serves, shell_name="sh",
        sockets=arguments.sockets,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with worker:
        for job in worker.assignments():
            with suppress(TakenAway):
                job.accept()
                _carry_out(worker, job, arguments.command, arguments.sockets)
            if arguments.once:
                break
    return 0


def _carry_out(worker: RemoteWorker, job: Assignment, command: list[str], sockets: Path) -> None:
    """Run the command; its end is the assignment's. Raises TakenAway."""
    with tempfile.TemporaryDirectory(prefix="aios-worker-") as folder:
        request = Path(folder) / "request.json"
        request.write_text(json.dumps(job.request, ensure_ascii=False) + "\n", encoding="utf-8")
        surroundings = {
            **os.environ, "AIOS_WORKER_ID": worker.id, "AIOS_WORKER_REGISTRATION": worker.registration,
            "AIOS_ASSIGNMENT_ID": job.id, "AIOS_TASK_ID": job.task_id, "AIOS_ATTEMPT": str(job.attempt),
            "AIOS_REQUEST": str(request), "AIOS_SOCKETS": str(sockets),
        }  # fmt: skip
        try:
            process = subprocess.Popen(command, env=surroundings, process_group=0)  # noqa: S603  the user's own
        except OSError as error:
            raise Misuse(f"{command[0]} cannot be started: {error.strerror}") from None
        try:
            status = _watch(worker, job, process)
        finally:
            _end(process)
    if job.state == "gone":
        return  # it has said itself how it ended
    if status == 0:
        job.complete()
    else:
        job.fail(f"exit status {status}" if status > 0 else f"killed by signal {-status}")


def _watch(worker: RemoteWorker, job: Assignment, process: subprocess.Popen[bytes]) -> int:
    """Until it ends, or the assignment is taken away. Stopped while it is paused."""
    stopped = False
    while (status := process.poll()) is None:
        state = job.state
        if state == "gone":
            return _end(process)
        if (state == "paused") is not stopped:
            stopped = not stopped
            os.killpg(process.pid, signal.SIGSTOP if stopped else signal.SIGCONT)
        with worker.changed:
            worker.changed.wait(LOOK)
    return status


def _end(process: subprocess.Popen[bytes]) -> int:
    """Nothing of the command is left behind. Its status."""
    for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if number is signal.SIGCONT:
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
    return process.wait()


# -- a word of the command that it runs


def _word(arguments: argparse.Namespace) -> int:
    if arguments.word == "request":
        return _print_request(arguments.key)
    about: JsonObject = {
        "worker_id": _surrounding("AIOS_WORKER_ID"),
        "assignment_id": _surrounding("AIOS_ASSIGNMENT_ID"),
    }
    with Client(Path(_surrounding("AIOS_SOCKETS")) / "aios.sock") as client:
        word, said = _said(arguments)
        client.call(f"aios/worker.{word}", {**about, **said})
        if arguments.word in ("ask", "approve"):
            return _wait_answer(client, about, arguments.word)
    return 0


def _surrounding(name: str) -> str:
    found = os.environ.get(name)
    if not found:
        raise Misuse(f"{name} is not set: this works only in a command of 'aios-task worker run'")
    return found


def _print_request(key: str | None) -> int:
    value: JsonValue = read_request(Path(_surrounding("AIOS_REQUEST")))
    for part in () if key is None else key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _complain(f"the request has no {key}", REFUSED)
        value = value[part]
    print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return 0


def _said(arguments: argparse.Namespace) -> tuple[str, JsonObject]:
    """The operation, and what is said with it."""
    match arguments.word:
        case "step":
            step: JsonObject = {"name": arguments.name, "status": arguments.status, "summary": arguments.summary}
            return "report", {"step": step}
        case "progress":
            return "report", {"progress": {"percent": arguments.percent, "message": arguments.message}}
        case "report":
            return "report", _object(arguments.report, "the report")
        case "artifact":
            text = sys.stdin.read() if arguments.file == "-" else Path(arguments.file).read_text("utf-8")
            part: JsonObject = {"text": text}
            return "report", {"artifact": {"key": arguments.key, "parts": [part], "mime_type": "text/plain"}}
        case "ask":
            asked: dict[str, JsonValue] = {"prompt": arguments.prompt, "interaction": os.getpid()}
            if arguments.schema != "null":
                asked["answer_schema"] = _object(arguments.schema, "the schema")
            return "report", {"question": asked}
        case "approve":
            wish: JsonObject = {"kind": arguments.kind, "summary": arguments.summary, "risk_level": arguments.risk}
            return "report", {"approval": {**wish, "interaction": os.getpid()}}
        case "complete":
            return "complete", {"result": _object(arguments.result, "the result")}
        case _:
            return "fail", {"message": arguments.message, "retryable": not arguments.final}


def _object(text: str, what: str) -> JsonObject:
    try:
        found: JsonValue = json.loads(text)
    except ValueError as error:
        raise Misuse(f"{what} is not JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise Misuse(f"{what} is not a JSON object")
    return found


def _wait_answer(client: Client, about: JsonObject, word: str) -> int:
    """`ask` prints the answer, `approve` succeeds when it is a yes."""
    beat: dict[str, JsonValue] = {
        "worker_id": about["worker_id"], "registration": _surrounding("AIOS_WORKER_REGISTRATION"), "status": "busy"
    }  # fmt: skip
    known = ""
    while True:
        answer = client.call("aios/worker.heartbeat", {**beat, "known": known, "wait_ms": WAIT_MS})
        known = str(answer.get("tag"))
        mine = [one for one in _rows(answer) if one.get("assignment_id") == about["assignment_id"]]
        if not mine:
            raise TakenAway("the assignment was taken away")
        given = mine[0].get("input")
        if isinstance(given, Mapping) and given.get("interaction") == os.getpid():
            client.call("aios/worker.heartbeat", {**beat, "received": [given["delivery"]]})
            value = given.get("input")
            if word == "approve":
                return 0 if isinstance(value, Mapping) and value.get("approved") is True else REFUSED
            print(json.dumps(value, ensure_ascii=False))
            return 0


def _rows(answer: JsonObject) -> Iterator[JsonObject]:
    shown = answer.get("assignments")
    for one in shown if isinstance(shown, list) else []:
        if isinstance(one, Mapping):
            yield one
