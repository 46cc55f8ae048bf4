"""The entry point of `aiosctl`: the verbs, loaded when asked for, and the one place where failures become text.

Errors go to stderr as two lines at most, `aiosctl: what` and a hint; with --json they go to stdout as
`{"error": {"code", "message", "data"}}`, so that who reads JSON reads one stream. Exit statuses: `exit_status.py`.
A fault of our own is told in the same way, with its place instead of a traceback.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from aiosd import __version__
from aiosd.cli import options
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import Failure
from aiosd.cli.session import Session
from aiosd.cli.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.cli.session import Connect


class Verb(NamedTuple):
    """A row of the help: where the verb is, and what it does in a few words."""

    name: str
    section: str
    summary: str

    def load(self) -> click.Command:
        """The verb's command, from the module of its name."""
        found = importlib.import_module(f"aiosd.cli.verb.{self.name.replace('-', '_')}").command
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see start.py; a verb may have to put things in order
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if not isinstance(found, click.Command):
            raise TypeError(f"verb {self.name} has no command")
        found.short_help = self.summary
        return found


RUN, SEE, STEER, PERMIT, SERVICE = "Running", "Seeing", "Steering", "Permission", "The service"
WHAT, TALK = "Capabilities and artifacts", "Sessions, plans and workers"
VERBS = {
    verb.name: verb
    for verb in (
        Verb("run", RUN, "Run a capability as a task"),
        Verb("exec", RUN, "Run a command as a task (compat.command.run)"),
        Verb("retry", RUN, "Run a finished task again, as a new one"),
        Verb("list", SEE, "List tasks"),
        Verb("show", SEE, "Show all of a task"),
        Verb("watch", SEE, "Watch tasks, or one task, live"),
        Verb("logs", SEE, "Print what a task's program wrote"),
        Verb("top", SEE, "Show CPU, memory and processes of running tasks, live"),
        Verb("wait", STEER, "Wait for tasks and exit with their status"),
        Verb("cancel", STEER, "Stop tasks for good"),
        Verb("pause", STEER, "Hold tasks where they are"),
        Verb("resume", STEER, "Let paused tasks go on"),
        Verb("priority", STEER, "Change a task's priority"),
        Verb("answer", STEER, "Answer a task's question"),
        Verb("auth", STEER, "Authenticate for a task"),
        Verb("approve", PERMIT, "Approve or reject what waits for a second word"),
        Verb("grant", PERMIT, "List and revoke what was consented to"),
        Verb("policy", PERMIT, "Check policy files, and explain what would happen"),
        Verb("session", TALK, "Sessions: conversations with their plans and tasks"),
        Verb("plan", TALK, "Show, make and change a session's plan"),
        Verb("tree", TALK, "Draw a task and all under it"),
        Verb("worker", TALK, "List and show workers, which carry out tasks of plans"),
        Verb("capability", WHAT, "List, show and check capabilities"),
        Verb("artifact", WHAT, "List and fetch what tasks produced"),
        Verb("webhook", WHAT, "Have tasks' events sent to web addresses"),
        Verb("kill-all", STEER, "Kill all tasks and let none start: the emergency stop"),
        Verb("audit", SERVICE, "Read and verify the audit trail"),
        Verb("state", SERVICE, "Check, back up, restore and export the database"),
        Verb("status", SERVICE, "Show what aiosd is doing"),
        Verb("drain", SERVICE, "Let no more tasks start"),
        Verb("reload", SERVICE, "Have aiosd read its configuration and capabilities again"),
        Verb("bug-report", SERVICE, "Collect what a bug report needs, without secrets"),
        Verb("rpc", SERVICE, "Call a method of the JSON-RPC interface"),
        Verb("completion", SERVICE, "Print the completion script of a shell"),
    )
}
"""Every verb, in the order of the help."""


class Verbs(options.Group):
    """`aiosctl`: its verbs are imported when they are used; the help comes from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of that name."""
        verb = VERBS.get(cmd_name)
        return verb.load() if verb else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs by section."""
        for section in dict.fromkeys(verb.section for verb in VERBS.values()):
            with formatter.section(section):
                formatter.write_dl([(verb.name, verb.summary) for verb in VERBS.values() if verb.section == section])


@click.group(cls=Verbs, epilog="More: aiosctl VERB --help, aiosctl(1).", context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="aiosctl", message="%(prog)s %(version)s")
@options.common
def aiosctl() -> None:
    """Run capabilities as tasks, watch them, steer them."""


def main() -> NoReturn:
    """The program `aiosctl`.

    A tenth of so short a life would go into looking for garbage while modules are imported (`Session.connect` turns
    that on again), another into taking the interpreter apart at the end, which the kernel does quicker: hence `_exit`.
    """
    gc.disable()
    status = run(sys.argv[1:])
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(status)


def run(arguments: Sequence[str], connect: Connect | None = None) -> int:
    """Run aiosctl; returns its exit status. `connect`: how to reach the daemon, the system bus when not given."""
    words = list(arguments)
    session = Session() if connect is None else Session(connect)
    try:
        status = _invoke(words, session)
        session.out.flush()
    except (KeyboardInterrupt, click.Abort):
        return _interrupted(session)
    except Exception as error:  # noqa: BLE001 - `_as_failure` tells what was not expected, too
        found = _innermost(error)
        if isinstance(found, BrokenPipeError):
            return _reader_is_gone()
        session.json = session.json or _wants_json(words)
        return _fail(session, _as_failure(found))
    return status


def _innermost(error: Exception) -> Exception:
    """The first of those that several things at once came to."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _invoke(words: list[str], session: Session) -> int:
    if words[:1] == ["__complete"]:
        from aiosd.cli.verb.completion import complete

        return complete(aiosctl, words[1:])
    if not words:
        words = ["--help"]
    try:
        with aiosctl.make_context("aiosctl", words, obj=session) as context:
            result = aiosctl.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return result if isinstance(result, int) else ExitStatus.SUCCESS


def _wants_json(words: list[str]) -> bool:
    """Whether --json stands on a command line that could not be read to its end."""
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own


def _as_failure(error: Exception) -> Failure:
    """The failure in it; what is not expected is a fault of ours."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, click.ClickException):
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "aiosctl"
        hint = f"'{path} --help' says how"
        message = error.format_message().rstrip(".")
        return Failure(message, hint=hint, status=ExitStatus.USAGE, error_id="AIOSCTL-USAGE")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure(f"{where}{error.strerror or error}", status=ExitStatus.IO, error_id="AIOSCTL-IO")
    if isinstance(error, UnicodeEncodeError):  # a word of the command line: whatever else is sent was text before
        near = ascii(error.object[max(error.start - 20, 0) : error.end + 20])
        return Failure(f"{near} is not UTF-8 text", status=ExitStatus.USAGE, error_id="AIOSCTL-USAGE")
    return _fault(error)


def _fault(error: Exception) -> Failure:
    import traceback

    *_, last = traceback.extract_tb(error.__traceback__)
    place = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
    return Failure(
        f"Internal error at {place}: {type(error).__name__}: {error}",
        hint="please report it, with what 'aiosctl bug-report' prints",
        status=ExitStatus.INTERNAL, error_id="AIOSCTL-INTERNAL",
    )  # fmt: skip


def _fail(session: Session, failure: Failure) -> int:
    """Say it where it is read. Of what cannot be written there is the exit status."""
    if session.json and _json_is_written(session, failure):
        return failure.status
    from aiosd.cli.session import Style

    with suppress(OSError):
        session.out.flush()
    with suppress(OSError):
        print(f"{session.paint('aiosctl:', Style.BAD, session.err)} {clean(failure.what)}", file=session.err)
        if failure.hint:
            print(f"  {clean(failure.hint)}", file=session.err)
    return failure.status


def _json_is_written(session: Session, failure: Failure) -> bool:
    try:
        session.emit({"error": failure.wire()})
    except OSError:
        return False  # a full disk, for example: stderr may lead elsewhere
    return True


def _interrupted(session: Session) -> int:
    if session.on_interrupt and not session.json:
        # The terminal has just shown ^C: start on a line of its own.
        print(("\n" if session.err_is_terminal else "") + session.on_interrupt, file=session.err)
    return ExitStatus.INTERRUPTED


def _reader_is_gone() -> int:
    """`aiosctl list | head`: quiet, and nothing more is written when Python flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitStatus.BROKEN_PIPE
