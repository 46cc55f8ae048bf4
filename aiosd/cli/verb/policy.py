"""`aiosctl policy`: check the administrator's policy files, and say what would happen to a request and why."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiosd.cli import options, permissions
from aiosd.cli.arguments import from_words
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.session import Style
from aiosd.cli.terminal import one_line
from aiosd.cli.values import list_at, string_at, text_of

if TYPE_CHECKING:
    from aiosd.auth.ceiling import Policy
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonValue

_OUTCOMES = {
    "allow": ("It would run without anybody being asked.", Style.GOOD),
    "ask": ("A person would be asked.", Style.WAITING),
    "refuse": ("It would be refused.", Style.BAD),
}
_APPROVAL = ("Nobody would be asked for a password; it would wait for an approval.", Style.WAITING)


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """Check policy files, and explain what would happen."""


@command.command
@click.argument("capability", type=options.CapabilityId())
@click.argument("words", metavar="[KEY=VALUE | KEY:=JSON]...", nargs=-1)
@click.option("--user", help="For this user (a name or a uid) instead of you.")
@options.common
@options.pass_session
def explain(session: Session, *, capability: str, words: tuple[str, ...], user: str | None) -> None:
    """Say what would happen to a request for CAPABILITY, and why. Nothing is run and nobody is asked."""
    uid = None if user is None else _uid(user)
    session.run(_explain(session, capability, words, uid))


def _uid(user: str) -> int:
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        die(f"There is no user {user}", status=ExitStatus.NOT_FOUND)


async def _explain(session: Session, capability: str, words: tuple[str, ...], uid: int | None) -> None:
    async with session.connect() as client:
        found = await permissions.explain(client, capability, from_words(words, {}), uid)
    if session.json:
        session.emit(found)
        return
    for sentence in list_at(found, "because"):
        session.say(one_line(text_of(sentence)))
    outcome = string_at(found, "outcome")
    text, style = _OUTCOMES.get(outcome, (one_line(outcome), None))
    if outcome == "allow" and found.get("needs_approval") is True:
        text, style = _APPROVAL
    session.say(session.paint(text, style))


@command.command
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--user-file", is_flag=True, help="It is one user's, as those in /etc/aios/permission-policy.d.")
@options.common
@options.pass_session
def check(session: Session, *, file: Path, user_file: bool) -> int:
    """Check a policy file without installing it; the daemon is not asked. Exit status 65 when something is wrong."""
    from aiosd.auth.ceiling import USERS, parse

    try:
        text = file.read_bytes()
    except OSError as error:
        die(f"{file}: {error.strerror}", status=ExitStatus.NOT_FOUND)
    policy, problems = parse(text, str(file), personal=user_file or file.parent.name == USERS.name)
    if session.json:
        found: list[JsonValue] = [
            {"file": one.file, "line": one.line, "key": one.key, "message": one.message} for one in problems
        ]
        session.emit({"valid": not problems, "problems": found})
    for problem in problems:
        session.note(one_line(str(problem)))
    for line in _said(policy):
        session.note(line)
    return ExitStatus.DATA if problems else ExitStatus.SUCCESS


def _said(policy: Policy) -> list[str]:
    """What is in force with the file as it is."""
    said = [f"Levels up to {policy.max_level.wire} are allowed."]
    for globs, words in (
        (policy.always_deny, "Denied to everybody it is about"), (policy.auto_grant, "Granted without asking"),
        (policy.require_audit, "Audited in any case"),
    ):  # fmt: skip
        if globs:
            said.append(f"{words}: {', '.join(globs)}.")
    if policy.root_command_without_approval:
        said.append("Root runs commands without an approval.")
    return said
