"""`aiosctl approve`: the second, independent word on something critical."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import approving, options, permissions
from aiosd.cli.durations import duration
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.session import Style
from aiosd.cli.table import Cell, render
from aiosd.cli.verb.list import user_name

if TYPE_CHECKING:
    from aiosd.cli.permissions import ApprovalRow
    from aiosd.cli.session import Session


@click.command
@click.argument("approval", required=False, default="")
@click.option("--reject", is_flag=True, help="Reject it; a task that has not started is canceled.")
@click.option("--for-session", is_flag=True, help="A running program may do this again in its session, unasked.")
@click.option("--list", "list_", is_flag=True, help="Only list what waits.")
@click.option("--yes", is_flag=True, help="Do not ask here, for scripts; the system still asks who may approve.")
@click.option("--all", "all_users", is_flag=True, help="Everybody's approvals, not only your own.")
@click.option("--note", default="", help="Why; kept with the answer.")
@options.common
@options.pass_session
def command(
    session: Session, *, approval: str, reject: bool, for_session: bool, list_: bool, yes: bool,
    all_users: bool, note: str,
) -> int:  # fmt: skip
    """Show exactly what would run, and approve or reject it.

    APPROVAL is an approval's id, the beginning of one or its task's id; it may be left out when only one waits.
    """
    if list_:
        return session.run(_list(session, all_users=all_users))
    if for_session and reject:
        die("--for-session approves, --reject rejects", status=ExitStatus.USAGE)
    action = "reject" if reject else "approve" if yes else None
    if action is None and not session.can_ask:
        die("An answer needs a terminal", hint="--yes approves without one, --reject rejects", status=ExitStatus.USAGE)
    return session.run(_approve(session, approval, action, note, all_users=all_users, lasting=for_session))


async def _approve(
    session: Session, word: str, action: str | None, note: str, *, all_users: bool, lasting: bool
) -> int:
    async with session.connect() as client:
        approval_id = await approving.find(client, word, all_users=all_users)
        status = await approving.decide(session, client, approval_id, action, note, lasting=lasting)
    if session.json:
        session.emit({"approval_id": approval_id, "status": status})
    session.note(f"{approval_id} {status}")
    return ExitStatus.SUCCESS


async def _list(session: Session, *, all_users: bool) -> int:
    async with session.connect() as client:
        found = await permissions.list_approvals(client, all_users=all_users)
    if session.json:
        session.emit({"approvals": [row._asdict() for row in found]})
    elif found:
        for line in render(
            session, ["APPROVAL", "RISK", "CAPABILITY", "ASKED BY", "LEFT", "FOR"], list(map(_row, found))
        ):
            session.say(line)
    else:
        session.note("Nothing waits for an approval.")
    return ExitStatus.SUCCESS


def _row(row: ApprovalRow) -> list[str | Cell]:
    import time

    left = max(0.0, row.expires / 1e6 - time.time())
    risk = Cell(row.risk_level, Style.BAD if row.risk_level == "critical" else None)
    summary = approving.visible(row.summary)
    return [row.approval_id, risk, row.capability_id, user_name(row.uid), duration(left), summary]
