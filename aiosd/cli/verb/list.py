"""`aiosctl list`: a page of tasks."""

from __future__ import annotations

import click

from aiosd.cli import options, sessions
from aiosd.cli.client import ListFilter
from aiosd.cli.durations import ago
from aiosd.cli.ids import resolve
from aiosd.cli.session import STATUS_STYLES, Session
from aiosd.cli.table import Cell, render
from aiosd.cli.values import TaskPage, TaskRow, to_json

_SORTS = {"created": "created_at", "updated": "updated_at", "priority": "priority"}
_ACTIVE = ("pending", "working", "paused", "input_required", "auth_required")


@click.command
@click.option("--status", "-s", multiple=True, type=options.STATUSES, help="Only tasks of this status (repeatable).")
@click.option("--active", "-a", is_flag=True, help="Only tasks that have not ended.")
@click.option("--capability", "-c", type=options.CapabilityId(), default="", help="Only this capability; a glob.")
@click.option("--session", "of_session", type=options.SessionId(), default="", help="Only tasks of this session.")
@click.option("--parent", type=options.TaskId(), default="", help="Only tasks right under this one.")
@click.option("--tag", default="", help="Only tasks whose metadata has this among its tags.")
@click.option("--user", type=options.User(), help="The tasks of this user: a name, or a uid.")
@click.option("--all-users", is_flag=True, help="The tasks of all users, not only one's own.")
@click.option("--limit", "-n", type=click.IntRange(1, 100), default=50, show_default=True, help="Tasks on a page.")
@click.option("--page", type=click.IntRange(1, 1_000_000), default=1, help="Which page; 1 is the first.")
@click.option("--all", "every", is_flag=True, help="All pages.")
@click.option("--sort", type=click.Choice(list(_SORTS)), default="created", show_default=True, help="Order by this.")
@click.option("--reverse", "-r", is_flag=True, help="Smallest or oldest first.")
@click.option(
    "--since", type=options.Moment(), default=0, help="Created at or after: a time, or a duration before now."
)
@click.option("--until", type=options.Moment(), default=0, help="Created before: a time, or a duration before now.")
@options.common
@options.pass_session
def command(
    session: Session,
    *,
    status: tuple[str, ...],
    active: bool,
    capability: str,
    of_session: str,
    parent: str,
    tag: str,
    user: int | None,
    all_users: bool,
    limit: int,
    page: int,
    every: bool,
    sort: str,
    reverse: bool,
    since: int,
    until: int,
) -> None:
    """List tasks, the newest first: one's own, unless --all-users asks for everybody's."""
    wanted = ListFilter(
        status=status + (_ACTIVE if active else ()),
        capability=capability,
        all_users=all_users,
        limit=100 if every else limit,
        offset=0 if every else (page - 1) * limit,
        sort=_SORTS[sort],
        ascending=reverse,
        since=since,
        until=until,
        session=of_session,
        parent=parent,
        tag=tag,
        uid=user,
    )
    session.run(_list(session, wanted, every=every))


async def _list(session: Session, wanted: ListFilter, *, every: bool) -> None:
    found: list[TaskRow] = []
    async with session.connect() as client:
        if wanted.session:
            wanted = wanted._replace(session=await sessions.resolve(client, wanted.session))
        if wanted.parent:
            wanted = wanted._replace(parent=await resolve(client, wanted.parent))
        page = await client.list_tasks(wanted)
        found += page.tasks
        while every and page.has_more and page.tasks:
            page = await client.list_tasks(wanted._replace(offset=len(found)))
            found += page.tasks
        found = list({row.task_id: row for row in found}.values())  # a task that came meanwhile has moved the pages
    whole = TaskPage(tuple(found), page.total, has_more=page.has_more)
    if session.json:
        session.emit(to_json(whole))
        return
    for line in table(session, whole.tasks, users=wanted.of_others):
        session.say(line)
    if not found:
        session.note("No tasks.")
    elif whole.has_more:
        session.note(
            f"\n{len(found)} of {whole.total} tasks; the next page: --page {wanted.offset // wanted.limit + 2}"
        )


def table(session: Session, rows: tuple[TaskRow, ...], *, users: bool = False) -> list[str]:
    """The rows for people."""
    head = ["TASK", "STATUS", "PHASE", "DONE", "CREATED", *(["USER"] if users else []), "CAPABILITY"]
    if not rows:
        return []
    return render(session, head, [_cells(row, users=users) for row in rows])


def _cells(row: TaskRow, *, users: bool) -> list[str | Cell]:
    return [
        row.task_id,
        Cell(row.status, STATUS_STYLES.get(row.status)),
        "" if row.phase == row.status else row.phase,
        f"{row.percent}%" if row.percent >= 0 else "",
        ago(row.created),
        *([user_name(row.uid)] if users else []),
        row.capability_id,
    ]


def user_name(uid: int) -> str:
    """A user's name, the number when there is none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
