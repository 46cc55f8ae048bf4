"""`aios-task`: the chunk protocol for shell scripts. Each call says one thing; `ask` and `approve` wait for the answer.

Every call is a process of its own on the same socket, so it never reads what another one could be waiting for: the
arguments come from the file that `AIOS_ARGUMENTS` names, and only `ask` and `approve` read. `aios-task worker` is for
workers, which are no tasks (`remote_command`).
Exit status: 0 done, or approved; 1 no such argument, not approved, or the task was canceled while it asked; 64 wrong
usage; 69 not inside a task, or the supervisor is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiosd.worker.task import Json

_USAGE = 64
_UNAVAILABLE = 69


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # it does not return, as the base promises
        self.print_usage(sys.stderr)
        self.exit(_USAGE, f"{self.prog}: {message}\n")


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="aios-task", description="Tell the system how this task is doing.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    _add_course(verbs)
    artifact = verbs.add_parser("artifact", help="hand over a file")
    artifact.add_argument("file")
    artifact.add_argument("--key")
    artifact.add_argument("--name")
    artifact.add_argument("--mime-type", default="application/octet-stream")
    artifact.add_argument("--kind", default="file", choices=["file", "image", "audio", "video"])
    artifact.add_argument("--duration-ms", type=int, help="of audio and video")
    verbs.add_parser("complete", help="the result").add_argument("result", nargs="?", default="{}", metavar="JSON")
    fail = verbs.add_parser("fail", help="it did not work")
    fail.add_argument("message")
    fail.add_argument("--reason", default="", help="a word for programs")
    fail.add_argument("--retryable", action="store_true")
    ask = verbs.add_parser("ask", help="ask the person; prints the answer as JSON")
    ask.add_argument("prompt")
    ask.add_argument("--schema", default="null", metavar="JSON")
    ask.add_argument("--option", action="append", default=[], help="one of the answers to choose from (repeatable)")
    ask.add_argument("--secret", action="store_true")
    approve = verbs.add_parser("approve", help="ask whether it may do something; succeeds only with a yes")
    approve.add_argument("kind", help="a word, like dangerous_command")
    approve.add_argument("summary", help="what is about to be done")
    approve.add_argument("--risk", default="medium", choices=["public", "low", "medium", "high", "critical"])
    verbs.add_parser("arguments", help="print the arguments").add_argument("key", nargs="?")
    worker = verbs.add_parser("worker", help="be a worker for tasks of plans; see aios-task worker --help")
    if "worker" in argv[:1]:
        from aiosd.worker import remote_command

        remote_command.add_verbs(worker, _Parser)
    return parser


def _add_course(verbs: argparse._SubParsersAction[_Parser]) -> None:
    """What tells how it goes."""
    progress = verbs.add_parser("progress", help="how far it is")
    progress.add_argument("percent", type=float)
    progress.add_argument("message", nargs="?", default="")
    progress.add_argument("--step", type=int, help="the step that it is at")
    progress.add_argument("--steps", type=int, help="how many there are")
    step = verbs.add_parser("step", help="a step of the work")
    step.add_argument("name")
    step.add_argument("status", nargs="?", default="started", choices=["started", "finished", "failed"])
    step.add_argument("--summary", default="")
    tool = verbs.add_parser("tool", help="a tool that is used")
    tool.add_argument("name")
    tool.add_argument("status", nargs="?", default="requested", choices=["requested", "finished"])
    tool.add_argument("--summary", default="")
    summary = verbs.add_parser("summary", help="where it stands")
    summary.add_argument("summary")
    summary.add_argument("--percent", type=float)
    summary.add_argument("--step", help="what it does now")
    summary.add_argument("--next", help="what it does next")
    summary.add_argument("--risk")
    log = verbs.add_parser("log", help="a line of the task's log")
    log.add_argument("message")
    log.add_argument("--level", default="info", choices=["debug", "info", "warning", "error"])


def _json(text: str, what: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError as error:
        raise SystemExit(_complain(f"{what} is not JSON: {error}", _USAGE)) from None
    return value


def _complain(message: str, status: int) -> int:
    sys.stderr.write(f"aios-task: {message}\n")
    return status


def _course(said: argparse.Namespace) -> Mapping[str, Json]:
    """The payload of `processing` (docs/architecture.md)."""
    if said.verb == "progress":
        return {"progress": {"percent": said.percent, "message": said.message}
                | _given(current_step=said.step, total_steps=said.steps)}  # fmt: skip
    if said.verb == "summary":
        more = _given(progress_percent=said.percent, current_step=said.step, next_step=said.next, risk=said.risk)
        return {"summary": {"summary": said.summary, **more}}
    word = "step" if said.verb == "step" else "tool_call"
    return {word: {"name": said.name, "status": said.status, "summary": said.summary}}


def _given(**values: Json) -> dict[str, Json]:
    return {name: value for name, value in values.items() if value is not None}


def _chunk(arguments: argparse.Namespace) -> tuple[str, Mapping[str, Json]]:
    if arguments.verb in ("progress", "step", "tool", "summary"):
        return "processing", _course(arguments)
    if arguments.verb == "log":
        return "log", {"level": arguments.level, "message": arguments.message}
    if arguments.verb == "artifact":
        described = {"path": arguments.file, "mime_type": arguments.mime_type}
        part: dict[str, Json] = {arguments.kind: described | _given(duration_ms=arguments.duration_ms)}
        name = arguments.name or Path(arguments.file).name
        found: dict[str, Json] = {"key": arguments.key or name, "name": name, "type": arguments.kind}
        return "artifact", found | {"mime_type": arguments.mime_type, "parts": [part], "append": False}
    if arguments.verb == "complete":
        return "task_completion", {"result": _json(arguments.result, "the result")}
    if arguments.verb == "fail":
        reason, retryable = arguments.reason, arguments.retryable
        return "task_failed", {"message": arguments.message, "reason": reason, "retryable": retryable}
    if arguments.verb == "approve":
        kind, summary, risk = arguments.kind, arguments.summary, arguments.risk
        wanted: dict[str, Json] = {"kind": kind, "summary": summary, "risk_level": risk}
        asked: dict[str, Json] = {"interaction": os.getpid(), "kind": "approval", "prompt": summary}
        return "task_interaction", asked | {"approval": wanted}
    question: dict[str, Json] = {"interaction": os.getpid(), "kind": "input", "prompt": arguments.prompt}
    question |= {"schema": _json(arguments.schema, "the schema"), "secret": arguments.secret}
    return "task_interaction", question | _given(options=arguments.option or None)


def _print_arguments(key: str | None) -> int:
    try:
        value: Json = json.loads(Path(os.environ["AIOS_ARGUMENTS"]).read_text("utf-8"))
    except (KeyError, OSError):
        return _complain("AIOS_ARGUMENTS names no file: this works only inside a task", _UNAVAILABLE)
    if key is not None:
        if not isinstance(value, dict) or key not in value:
            return _complain(f"there is no argument {key}", 1)
        value = value[key]
    print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return 0


def _wait_answer(sock: socket.socket, number: int, verb: str) -> int:
    """`ask` prints the answer, `approve` succeeds when it is a yes."""
    with sock.makefile("rb") as lines:
        for line in lines:
            message = json.loads(line)
            if message.get("type") == "cancel":
                return _complain("the task was canceled", 1)
            if message.get("type") == "input" and message.get("interaction") == number:
                given = message.get("input")
                if verb == "approve":
                    return 0 if isinstance(given, dict) and given.get("approved") is True else 1
                print(json.dumps(given, ensure_ascii=False))
                return 0
    return _complain("the supervisor is gone", _UNAVAILABLE)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser(words).parse_args(words)
    if arguments.verb == "worker":
        from aiosd.worker import remote_command

        return remote_command.main(arguments)
    if arguments.verb == "arguments":
        return _print_arguments(arguments.key)
    kind, payload = _chunk(arguments)
    last = kind in ("task_completion", "task_failed")
    chunk = {"type": kind, "payload": payload, "index": 0, "last_chunk": last}
    try:
        line = json.dumps(chunk, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except ValueError as error:
        return _complain(str(error), _USAGE)
    try:
        with socket.socket(fileno=os.dup(int(os.environ["AIOS_TASK_FD"]))) as sock:
            sock.sendall(line)
            waits = arguments.verb in ("ask", "approve")
            return _wait_answer(sock, os.getpid(), arguments.verb) if waits else 0
    except (KeyError, ValueError, OSError) as error:
        return _complain(f"not inside a task, or its supervisor is gone: {error}", _UNAVAILABLE)


if __name__ == "__main__":
    raise SystemExit(main())
