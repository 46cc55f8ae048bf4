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
    progress = verbs.add_parser("progress", help="how far it is")
    progress.add_argument("percent", type=float)
    progress.add_argument("message", nargs="?", default="")
    log = verbs.add_parser("log", help="a line of the task's log")
    log.add_argument("message")
    log.add_argument("--level", default="info", choices=["debug", "info", "warning", "error"])
    artifact = verbs.add_parser("artifact", help="hand over a file")
    artifact.add_argument("file")
    artifact.add_argument("--key")
    artifact.add_argument("--name")
    artifact.add_argument("--mime-type", default="application/octet-stream")
    verbs.add_parser("complete", help="the result").add_argument("result", nargs="?", default="{}", metavar="JSON")
    fail = verbs.add_parser("fail", help="it did not work")
    fail.add_argument("message")
    fail.add_argument("--retryable", action="store_true")
    ask = verbs.add_parser("ask", help="ask the person; prints the answer as JSON")
    ask.add_argument("prompt")
    ask.add_argument("--schema", default="null", metavar="JSON")
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


def _json(text: str, what: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError as error:
        raise SystemExit(_complain(f"{what} is not JSON: {error}", _USAGE)) from None
    return value


def _complain(message: str, status: int) -> int:
    sys.stderr.write(f"aios-task: {message}\n")
    return status


def _chunk(arguments: argparse.Namespace) -> tuple[str, Mapping[str, Json]]:
    if arguments.verb == "progress":
        progress: dict[str, Json] = {"percent": arguments.percent, "message": arguments.message}
        return "processing", {"progress": progress}
    if arguments.verb == "log":
        return "log", {"level": arguments.level, "message": arguments.message}
    if arguments.verb == "artifact":
        part: dict[str, Json] = {"file": {"path": arguments.file, "mime_type": arguments.mime_type}}
        name = arguments.name or Path(arguments.file).name
        found: dict[str, Json] = {"key": arguments.key or name, "name": name, "type": "file"}
        return "artifact", found | {"mime_type": arguments.mime_type, "parts": [part], "append": False}
    if arguments.verb == "complete":
        return "task_completion", {"result": _json(arguments.result, "the result")}
    if arguments.verb == "fail":
        return "task_failed", {"message": arguments.message, "reason": "", "retryable": arguments.retryable}
    if arguments.verb == "approve":
        kind, summary, risk = arguments.kind, arguments.summary, arguments.risk
        wanted: dict[str, Json] = {"kind": kind, "summary": summary, "risk_level": risk}
        asked: dict[str, Json] = {"interaction": os.getpid(), "kind": "approval", "prompt": summary}
        return "task_interaction", asked | {"approval": wanted}
    question: dict[str, Json] = {"interaction": os.getpid(), "kind": "input", "prompt": arguments.prompt}
    return "task_interaction", question | {"schema": _json(arguments.schema, "the schema"), "secret": arguments.secret}


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
