"""`aiosctl run`: a capability as a task; with --wait or --follow to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import click

from aiosd.cli import options
from aiosd.cli.arguments import from_json, from_words, needs_schema
from aiosd.cli.client import Option
from aiosd.cli.exit_status import ExitStatus, of_task
from aiosd.cli.failure import die
from aiosd.cli.ids import resolve
from aiosd.cli.values import object_at, to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from aiosd.cli.client import Options, TaskManagerClient
    from aiosd.cli.follow import Asker, View
    from aiosd.cli.options import F
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject


class Wish(TypedDict):
    """How the task is to be run: the options of `run` and `exec`. Times in ms, moments in µs since the epoch; 0, None
    and "" are not given."""

    follow: bool
    wait: bool
    priority: str | None
    timeout: int
    retry: int | None
    retry_delay: int
    depends_on: tuple[str, ...]
    not_before: int
    of_session: str
    parent: str
    title: str
    idempotency_key: str
    metadata: str
    limits: str
    defer: bool


async def _create_options(client: TaskManagerClient, wish: Wish) -> Options:
    """The wish as CreateTask takes it."""
    found: Options = {}
    for name, kind, number in (
        ("timeout_ms", "t", wish["timeout"]),
        ("retry_max_attempts", "u", wish["retry"]),
        ("retry_delay_ms", "t", wish["retry_delay"]),
        ("not_before", "t", wish["not_before"]),
    ):
        if number:
            found[name] = Option(kind, number)
    if wish["depends_on"]:
        found["depends_on"] = Option("as", [await resolve(client, word) for word in wish["depends_on"]])
    if wish["parent"]:
        found["parent_task_id"] = Option("s", await resolve(client, wish["parent"]))
    if wish["of_session"]:
        from aiosd.cli import sessions

        found["session_id"] = Option("s", await sessions.resolve(client, wish["of_session"]))
    for given, option in ((wish["metadata"], "--metadata"), (wish["limits"], "--limits")):
        if given:
            from_json(given, option)
    if wish["defer"]:
        found["defer"] = Option("b", value=True)
    for name, text in (
        ("priority", wish["priority"]),
        ("title", wish["title"]),
        ("idempotency_key", wish["idempotency_key"]),
        ("metadata", wish["metadata"]),
        ("limits", wish["limits"]),
    ):
        if text:
            found[name] = Option("s", text)
    return found


_WISHES: tuple[Callable[[F], F], ...] = (
    click.option("--follow", "-f", is_flag=True, help="Show progress and output until it ends; exit with its status."),
    click.option("--wait", "-w", is_flag=True, help="Wait until it ends, print its result; exit with its status."),
    click.option("--priority", "-p", type=options.PRIORITIES, help="Who starts first when tasks queue."),
    click.option("--timeout", type=options.Duration(), default=0, help="The longest it may run: 90, 5min."),
    click.option("--retry", type=click.IntRange(1, 100), help="How often it is tried, all in all."),
    click.option("--retry-delay", type=options.Duration(), default=0, help="What is waited before it is tried again."),
    click.option("--depends-on", type=options.TaskId(), multiple=True, help="Start after this task (repeatable)."),
    click.option("--not-before", type=options.Moment(from_now=True), default=0,
                 help="Start no earlier: a time, or a duration from now."),
    click.option("--session", "of_session", type=options.SessionId(), default="", help="The session it belongs to."),
    click.option("--parent", type=options.TaskId(), default="", help="The task that it is under: canceled with it."),
    click.option("--title", default="", help="What people see as its name."),
    click.option("--idempotency-key", default="", help="The same key makes no second task."),
    click.option("--metadata", metavar="JSON", default="", help="A JSON object that is kept with the task."),
    click.option("--limits", metavar="JSON", default="",
                 help='Tighter limits than the capability\'s own: {"memory_max": 67108864, "tasks_max": 8}.'),
    click.option("--defer", is_flag=True,
                 help="When a person has to be asked who cannot be now, keep the task for them to authenticate later."),
)  # fmt: skip


def wishes(function: F) -> F:
    """The options that Wish names."""
    for option in reversed(_WISHES):
        function = option(function)
    return function


@click.command(cls=options.JsonArguments)
@click.argument("capability", type=options.CapabilityId())
@click.argument("words", metavar="[KEY=VALUE | KEY:=JSON]...", nargs=-1)
@options.arguments_option
@wishes
@options.common
@options.pass_session
def command(session: Session, *, capability: str, words: tuple[str, ...], arguments: str, **wish: Unpack[Wish]) -> int:
    """Run a capability as a task and print the task's id.

    KEY=VALUE takes the type that the capability gives the key (repeat it for an array); KEY:=JSON is taken as it is.
    """
    return session.run(_run(session, capability, words, arguments, wish))


async def _run(session: Session, capability: str, words: tuple[str, ...], json_text: str, wish: Wish) -> int:
    if words and json_text:
        die("Arguments are given both as KEY=VALUE and as JSON", status=ExitStatus.USAGE)
    async with session.connect() as client:
        if json_text:
            given = from_json(options.read_arguments(json_text), "--arguments")
        else:
            given = await _typed(client, capability, words)
        return await create_and_follow(session, client, capability, given, wish)


async def _typed(client: TaskManagerClient, capability: str, words: tuple[str, ...]) -> JsonObject:
    schema: JsonObject = {}
    if needs_schema(words):
        manifest = await client.capability(capability)
        schema = object_at(manifest, "input_schema") or object_at(manifest, "input")
    return from_words(words, schema)


async def create_and_follow(
    session: Session, client: TaskManagerClient, capability: str, given: JsonObject, wish: Wish
) -> int:
    """Make the task; the rest as `wish` says. Returns the exit status."""
    created = await client.create(capability, given, await _create_options(client, wish))
    if not session.json:
        await _offer_approval(session, client, created.task_id, follow=wish["follow"])
    if not (wish["follow"] or wish["wait"]):
        if session.json:
            session.emit(to_json(created))
        else:
            session.say(created.task_id)
        return ExitStatus.SUCCESS
    return await to_the_end(session, client, created.task_id, follow=wish["follow"])


async def _offer_approval(session: Session, client: TaskManagerClient, task_id: str, *, follow: bool) -> None:
    """What is critical waits for a second word; on a terminal it can be given here. What its program asks for when it
    runs already, is asked while it is followed."""
    task = await client.get(task_id)
    if object_at(task, "auth_request"):
        from aiosd.cli.approving import offer
        from aiosd.cli.asking import asks_approval

        if follow and asks_approval(object_at(task, "auth_request")):
            return

        await offer(session, task)


async def to_the_end(session: Session, client: TaskManagerClient, task_id: str, *, follow: bool) -> int:
    """Follow a task, or just wait for it; show how it ended and return its exit status."""
    from aiosd.cli.follow import follow as follow_task
    from aiosd.cli.follow import until_final
    from aiosd.cli.views import say_end, view_for

    hint = f"{task_id} goes on running; 'aiosctl cancel {task_id}' stops it, 'aiosctl watch {task_id}' shows it again."
    with session.interruptible(hint):
        if follow:
            with view_for(session) as view:
                view.note(f"Task {task_id}")
                asker = _asker(session, client, task_id, view)
                task = await follow_task(client, task_id, view, output=True, asker=asker)
        else:
            task = await until_final(client, task_id)
    if session.json:
        session.emit({"kind": "task", "data": task} if follow else task)
    else:
        say_end(session, task)
        if object_at(task, "result"):
            session.emit(object_at(task, "result"), pretty=True)
    return of_task(task)


def _asker(session: Session, client: TaskManagerClient, task_id: str, view: View) -> Asker | None:
    """On a terminal, the task's questions are asked in place."""
    if not session.can_ask:
        return None
    from aiosd.cli.asking import Questions

    return Questions(session, client, task_id, view)
