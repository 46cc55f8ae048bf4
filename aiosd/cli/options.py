"""What the verbs' command lines have in common: options, types with completion, and the `--json` that takes
arguments too.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

import click

from aiosd.cli.durations import parse_moment, parse_ms
from aiosd.cli.session import ColorWhen, Session
from aiosd.model.status import Priority, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    # click 8.1's is not generic.
    _Whole = click.ParamType[int]
    _Word = click.ParamType[str]
else:
    _Whole = _Word = click.ParamType

F = TypeVar("F", bound="Callable[..., object]")

pass_session = click.make_pass_decorator(Session)


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value:
        context.ensure_object(Session).json = True


def _set_color(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value:
        context.ensure_object(Session).color = ColorWhen(value)


def _set_no_ask(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value:
        context.ensure_object(Session).ask_password = False


_COMMON: tuple[Callable[[F], F], ...] = (
    click.option("--json", is_flag=True, expose_value=False, callback=_set_json, help="Answer in JSON, errors too."),
    click.option(
        "--color",
        type=click.Choice([when.value for when in ColorWhen]),
        expose_value=False,
        callback=_set_color,
        help="Use colours: auto (on a terminal, unless NO_COLOR is set), always or never.",
    ),
    click.option(
        "--no-ask-password",
        is_flag=True,
        expose_value=False,
        callback=_set_no_ask,
        help="Do not have anyone asked for a password: fail instead.",
    ),
)


def common(function: F) -> F:
    """The options of every verb."""
    for option in reversed(_COMMON):
        function = option(function)
    return function


class Duration(_Whole):
    """A duration, in milliseconds."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds."""
        if isinstance(value, int):
            return value
        try:
            return parse_ms(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Moment(_Whole):
    """A moment, in microseconds since the epoch. `from_now`: a duration is in the future, not in the past."""

    name = "when"

    def __init__(self, *, from_now: bool = False) -> None:
        """What a duration means."""
        self._from_now = from_now

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Microseconds since the epoch."""
        if isinstance(value, int):
            return value
        try:
            return parse_moment(value, from_now=self._from_now)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class User(_Whole):
    """A user: a name, or a uid."""

    name = "user"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The uid."""
        import pwd

        if isinstance(value, int) or (value.isascii() and value.isdigit()):
            return int(value)
        try:
            return pwd.getpwnam(value).pw_uid
        except KeyError:
            self.fail(f"there is no user {value!r}", param, ctx)


class _Completed(_Word):
    """A text for which the shell offers what the daemon knows."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """What begins like `incomplete`."""
        from click.shell_completion import CompletionItem

        from aiosd.cli import candidates

        found = candidates.SOURCES[self.name](incomplete)
        return [CompletionItem(word, help=text) for word, text in found]


class TaskId(_Completed):
    """A task: its id, a beginning of it that no other id has, or `last`."""

    name = "task"


class SessionId(_Completed):
    """A session: its id, a beginning of it that no other id has, or `last`."""

    name = "session"


class CapabilityId(_Completed):
    """A capability's id."""

    name = "capability"


class WorkerId(_Completed):
    """A worker's id."""

    name = "worker"


PRIORITIES = click.Choice([priority.wire for priority in Priority])
STATUSES = click.Choice([status.value for status in Status])


class Group(click.Group):
    """A group of verbs, which takes every word that is none of them for a mistake: click answers some with the help."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that the words begin with."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}.")
        return super().resolve_command(ctx, args)


class JsonArguments(click.Command):
    """A verb whose `--json` may be followed by `-` or an object: they are its arguments then, not its output's form."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `--json X` as `--arguments X` where X is `-` or begins with a brace."""
        result: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                result += [word, *words]
            elif word.startswith("--json="):
                result.append("--arguments=" + word.removeprefix("--json="))
            elif result and result[-1] == "--json" and (word == "-" or word.lstrip().startswith("{")):
                result[-1:] = ["--arguments", word]
            else:
                result.append(word)
        return super().parse_args(ctx, result)


arguments_option = click.option(
    "--arguments",
    metavar="JSON",
    default="",
    help="The arguments as one JSON object; '-' reads it from stdin. '--json -' and '--json {…}' are the same.",
)


def read_arguments(text: str) -> str | bytes:
    """The JSON text that --arguments names."""
    return sys.stdin.buffer.read() if text == "-" else text
