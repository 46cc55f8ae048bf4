"""`aiosctl audit`: read the audit trail, verify it, take it elsewhere, sign it with a new key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiosd.cli import guard, options
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.ids import resolve
from aiosd.cli.session import Session, Style
from aiosd.cli.table import Cell, render
from aiosd.cli.terminal import one_line
from aiosd.cli.values import list_at, text_of
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject
    from aiosd.store.audit_verify import Report


@click.group(cls=options.Group)
@options.common
def command() -> None:
    """Read and verify the audit trail: who asked for what, who allowed it, what came of it."""


@command.command
@click.argument("task", type=options.TaskId(), required=False, default="")
@click.option("--kind", metavar="GLOB", default="", help="Kinds of records, such as 'permission.*'.")
@click.option("--since", metavar="WHEN", type=options.Moment(), default=0, help="Not older than this.")
@click.option("--until", metavar="WHEN", type=options.Moment(), default=0, help="Older than this.")
@click.option("--all", "all_users", is_flag=True, help="Everybody's records, not only those about you.")
@click.option("-n", "--lines", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="NUMBER", help="Begin after the record NUMBER.")
@options.common
@options.pass_session
def query(
    session: Session, *, task: str, kind: str, since: int, until: int, all_users: bool, lines: int, after: int
) -> None:  # fmt: skip
    """Show records, oldest first; of one task when it is named."""
    session.run(_query(session, task, kind, since, until, lines, after, all_users=all_users))


async def _query(
    session: Session, word: str, kind: str, since: int, until: int, lines: int, after: int, *, all_users: bool
) -> None:  # fmt: skip
    async with session.connect() as client:
        task_id = await resolve(client, word) if word else ""
        query = guard.AuditQuery(
            task_id=task_id, kind=kind, since=since, until=until, limit=lines, after=after, all_users=all_users
        )  # fmt: skip
        page = await guard.query_audit(client, query)
    if session.json:
        session.emit(page)
        return
    rows = [row for row in list_at(page, "records") if isinstance(row, dict)]
    for line in render(session, ["NO", "TIME", "ACTOR", "KIND", "TASK", "DETAILS"], [_cells(row) for row in rows]):
        session.say(line)
    if not rows:
        session.note("No records.")
    elif page.get("has_more") is True:
        session.note(f"\nMore: --after {text_of(rows[-1].get('seq'))}")


def _cells(row: JsonObject) -> list[str | Cell]:
    words = [one_line(text_of(row.get(name))) for name in ("seq", "time", "actor", "kind", "task_id")]
    return [*words, Cell(one_line(dump(row.get("details"))), Style.DIM)]


@command.command
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Verify an export, or a database file, without the daemon.",
)  # fmt: skip
@click.option("--journal", is_flag=True, help="Also compare with what this machine's journal has of the trail.")
@click.option(
    "--trust", metavar="FINGERPRINT", multiple=True,
    help="Trust this key, and what it endorsed. Without it the oldest key of the trail is believed.",
)  # fmt: skip
@options.common
@options.pass_session
def verify(session: Session, *, path: Path | None, journal: bool, trust: tuple[str, ...]) -> int:
    """Check that no record was altered, removed, put elsewhere or cut off. Exit status 1 when one was.

    Without --file it asks the daemon, and needs the right to manage.
    """
    return session.run(_verify(session, path, trust, journal=journal))


async def _verify(session: Session, path: Path | None, trust: tuple[str, ...], *, journal: bool) -> int:
    from aiosd.cli import audit_source
    from aiosd.store import audit_verify

    if path is not None:
        source, evidence = audit_source.from_file(path)
    else:
        async with session.connect() as client:
            source, evidence = audit_source.from_json(*await audit_source.fetched(client))
    evidence = replace(
        evidence, trusted=frozenset(trust), witnesses=audit_source.from_journal() if journal else {}
    )  # fmt: skip
    report = audit_verify.verify(source, evidence)
    _tell(session, report, [key.id for key in evidence.keys], len(evidence.witnesses))
    return ExitStatus.SUCCESS if report.sound else ExitStatus.FAILURE


def _tell(session: Session, report: Report, keys: list[str], witnesses: int) -> None:
    if session.json:
        problems: list[JsonObject] = [
            {"fault": one.fault.value, "first": one.first, "last": one.last, "message": one.text}
            for one in report.problems
        ]
        session.emit(
            {"sound": report.sound, "records": report.rows, "first": report.first, "last": report.last,
             "signatures": report.signed, "keys": [*keys], "witnesses": witnesses, "problems": [*problems]}
        )  # fmt: skip
        return
    for one in report.problems:
        place = f"record {one.first}" if one.first == one.last else f"records {one.first} to {one.last}"
        session.say(f"{session.paint(one.fault.value, Style.BAD)}: {place}: {one_line(one.text)}")
    session.say(
        f"{report.rows} records ({report.first} to {report.last}), {report.signed} signatures"
        + (f", {witnesses} of them in the journal" if witnesses else "")
    )
    for key in keys:
        session.say(f"key {one_line(key)}")
    verdict = "nothing was changed" if report.sound else "THE TRAIL WAS CHANGED"
    session.say(session.paint(verdict, Style.GOOD if report.sound else Style.BAD))


@command.command
@options.common
@options.pass_session
def export(session: Session) -> None:
    """Print the whole trail as lines of JSON, with the keys; `verify --file` reads it. Needs the right to manage."""
    session.run(_export(session))


async def _export(session: Session) -> None:
    from aiosd.cli import audit_source

    async with session.connect() as client:
        head, records = await audit_source.fetched(client)
    session.emit(head)
    for record in records:
        session.emit(record)


@command.command("rotate-key")
@options.common
@options.pass_session
def rotate_key(session: Session) -> None:
    """Sign with a new key from here on. The old private key is destroyed; its public key is kept for verifying."""
    session.run(_rotate(session))


async def _rotate(session: Session) -> None:
    async with session.connect() as client:
        fingerprint = await guard.rotate_audit_key(client)
    if session.json:
        session.emit({"fingerprint": fingerprint})
    else:
        session.say(one_line(fingerprint))
