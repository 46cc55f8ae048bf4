"""The transport that is used: the system bus, by `aiosd.bus.connection`. Imported when a verb calls, not before."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from aiosd.bus.connection import BusCallError, Call, SystemBus, Variant
from aiosd.cli import failure
from aiosd.cli.client import MANAGER, MANAGER_PATH, Notice, Reply
from aiosd.cli.exit_status import ExitStatus
from aiosd.model.jsontext import JsonTextError, parse_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiosd.bus.connection import Signal
    from aiosd.cli.client import Argument, Member
    from aiosd.model.jsontext import JsonObject

BUS_NAME = "org.aios.TaskManager"


class BusTransport:
    """Calls to `org.aios.TaskManager`. `interactive`: the daemon may have a person asked on our behalf."""

    def __init__(self, bus: SystemBus, *, interactive: bool) -> None:
        """`bus`: connected, and the caller's to close."""
        self._bus = bus
        self._interactive = interactive

    async def call(
        self, member: Member, path: str, body: tuple[Argument, ...], seconds: float | None, fds: tuple[int, ...] = ()
    ) -> Reply:
        """Raises Failure for an error reply."""
        call = Call(
            BUS_NAME,
            path,
            member.interface,
            member.name,
            member.signature,
            tuple(_marshal(argument) for argument in body),
            fds,
            timeout=seconds,
            allow_interactive=self._interactive,
        )
        try:
            answer = await self._bus.call(call)
        except BusCallError as error:
            raise failure.of_dbus(error.name, error.message, _data(error)) from None
        return Reply(answer.body, answer.fds)

    @contextlib.asynccontextmanager
    async def listen(self, names: tuple[str, ...], listener: Callable[[Notice], None]) -> AsyncIterator[None]:
        """Signals of the main object; the bus sees to it that they are from the owner of the name."""

        def on_signal(signal: Signal) -> None:
            if signal.interface == MANAGER and signal.path == MANAGER_PATH and signal.member in names:
                listener(Notice(signal.member, signal.body))

        off = self._bus.on_signal(on_signal)
        rules = [
            f"type='signal',sender='{BUS_NAME}',interface='{MANAGER}',path='{MANAGER_PATH}',member='{name}'"
            for name in names
        ]
        try:
            for rule in rules:
                await self._bus.add_match(rule)
            yield
        finally:
            off()
            with contextlib.suppress(BusCallError):
                for rule in rules:
                    await self._bus.remove_match(rule)


def _data(error: BusCallError) -> JsonObject:
    """What came with an error beside its text; {} when that is nothing of aiosd's."""
    text = error.body[1] if len(error.body) > 1 else None
    try:
        return parse_object(text) if isinstance(text, str) else {}
    except JsonTextError:
        return {}


def _marshal(argument: Argument) -> str | int | list[str] | dict[str, Variant]:
    if isinstance(argument, str | int | list):
        return argument
    return {name: Variant(option.signature, option.value) for name, option in argument.items()}


@contextlib.asynccontextmanager
async def connect(*, interactive: bool) -> AsyncIterator[BusTransport]:
    """A connection to the system bus ($DBUS_SYSTEM_BUS_ADDRESS or the well-known socket)."""
    try:
        bus = await SystemBus().__aenter__()
    except ConnectionError as error:
        failure.die(
            f"The system bus cannot be reached: {error}",
            hint="'systemctl status dbus.service' tells why",
            status=ExitStatus.UNAVAILABLE,
        )
    try:
        yield BusTransport(bus, interactive=interactive)
    finally:
        await bus.__aexit__(None, None, None)
