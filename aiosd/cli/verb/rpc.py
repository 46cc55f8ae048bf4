"""`aiosctl rpc`: call a method of the JSON-RPC door and print its result, for people and for shell scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aiosd.cli import arguments, options
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import START_HINT, die, of_rpc

if TYPE_CHECKING:
    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject, JsonValue

_SOCKET = "/run/aios/aios.sock"


@click.command
@click.argument("method")
@click.argument("params", metavar="[JSON]", default="")
@click.option("--socket", metavar="PATH", default=_SOCKET, show_default=True, help="Where aiosd listens.")
@options.common
@options.pass_session
def command(session: Session, *, method: str, params: str, socket: str) -> None:
    """Call a JSON-RPC method of aiosd and print its result. METHOD is as aios/task.get, or task.get for short;
    rpc.discover tells all of them.

    JSON holds the parameters; '-' reads them from stdin.
    """
    parsed = arguments.from_json(options.read_arguments(params), "JSON")
    name = method if "/" in method or method.startswith("rpc.") else f"aios/{method}"
    session.emit(session.run(_call(session, name, parsed, socket)), pretty=session.out_is_terminal and not session.json)


async def _call(session: Session, method: str, params: JsonObject, socket: str) -> dict[str, JsonValue]:
    import asyncio

    from aiosd.client import CallError, Client, ProtocolError

    async with session.asking():
        try:
            # In a thread: the agent that asks for a password is waited for on the loop meanwhile.
            with Client(socket, interactive=session.ask_password) as client:
                return await asyncio.to_thread(client.call, method, params)
        except CallError as error:
            raise of_rpc(error.error_id, str(error), error.data) from None
        except ProtocolError as error:
            die(f"aiosd was not understood: {error}", status=ExitStatus.PROTOCOL)
        except OSError as error:
            die(
                f"aiosd cannot be reached at {socket}: {error.strerror or error}",
                hint=START_HINT,
                status=ExitStatus.UNAVAILABLE,
            )
