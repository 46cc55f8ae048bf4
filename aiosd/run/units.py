"""systemd, as the launcher needs it: scopes made, signalled, frozen, and heard of when they end.

org.freedesktop.systemd1(5). Jobs and units are followed by the manager's signals, subscribed to once; a wait for a job
is registered before the call, because JobRemoved may come with its answer.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from aiosd.bus.message import Answer, BusCallError, Call, Signal
from aiosd.run.layout import SLICE, run_of_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiosd.bus.message import BusValue
    from aiosd.run.limits import Property

_SYSTEMD = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"
_MANAGER = f"{_SYSTEMD}.Manager"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_NO_SUCH_UNIT = f"{_SYSTEMD}.NoSuchUnit"
_JOB_TIMEOUT = 30.0
_NEEDED = frozenset({"PIDs", "Slice", "Description"})

_log = logging.getLogger(__name__)


class Bus(Protocol):
    """The part of `aiosd.bus.connection.SystemBus` that is used here."""

    async def call(self, call: Call) -> Answer:
        """Call a method; raises BusCallError."""

    async def add_match(self, rule: str) -> None:
        """Ask for signals."""

    def on_signal(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        """Hear them."""


class UnitError(Exception):
    """systemd refused; `gone` when the unit does not exist (any more)."""

    def __init__(self, message: str, *, gone: bool = False) -> None:
        """`message` for people."""
        super().__init__(message)
        self.gone = gone


class Units:
    """The scopes of runs."""

    def __init__(self, bus: Bus, variant: Callable[[str, BusValue], BusValue], ended: Callable[[str], None]) -> None:
        """`variant`: makes a D-Bus variant. `ended`: called with the run when a scope is gone."""
        self._bus = bus
        self._variant = variant
        self._ended = ended
        self._jobs: dict[str, asyncio.Future[str]] = {}
        self._gone: dict[str, asyncio.Event] = {}
        self._refused: set[str] = set()
        self.version = ""

    async def start(self) -> None:
        """Subscribe. Raises BusCallError."""
        self._bus.on_signal(self._on_signal)
        for member in ("JobRemoved", "UnitRemoved"):
            await self._bus.add_match(f"type='signal',sender='{_SYSTEMD}',interface='{_MANAGER}',member='{member}'")
        await self._manager("Subscribe")
        answer = await self._bus.call(Call(_SYSTEMD, _PATH, _PROPERTIES, "Get", "ss", (_MANAGER, "Version")))
        self.version = str(getattr(answer.body[0], "value", answer.body[0]))

    async def _manager(self, member: str, signature: str = "", *body: BusValue) -> Answer:
        return await self._bus.call(Call(_SYSTEMD, _PATH, _MANAGER, member, signature, body))

    # -- making a scope ---------------------------------------------------------------------------------------------

    async def start_scope(
        self, unit: str, description: str, pids: Sequence[int], properties: Sequence[Property]
    ) -> list[str]:
        """Make the scope with these processes and wait until it is there. Raises UnitError.

        What this systemd does not know is left out, remembered, and returned by name.
        """
        while True:
            wanted = [item for item in properties if item.name not in self._refused]
            try:
                await self._start_job(unit, self._body(description, pids, wanted))
            except BusCallError as error:
                if not self._learn(error, wanted):
                    raise UnitError(f"{unit}: {error.message}") from None
                continue
            return [item.name for item in properties if item.name in self._refused]

    def _body(self, description: str, pids: Sequence[int], properties: Sequence[Property]) -> list[BusValue]:
        found: list[BusValue] = [
            ["Description", self._variant("s", description)],
            ["Slice", self._variant("s", SLICE)],
            ["PIDs", self._variant("au", list(pids))],
        ]
        return found + [[item.name, self._variant(item.signature, item.value)] for item in properties]

    def _learn(self, error: BusCallError, sent: Sequence[Property]) -> bool:
        """Which property the error is about; whether it is worth another try without it."""
        for item in sent:
            if item.name not in _NEEDED and item.name in error.message.replace(",", " ").split():
                self._refused.add(item.name)
                _log.warning("systemd %s does not take %s: %s", self.version, item.name, error.message)
                return True
        return False

    async def _start_job(self, unit: str, body: list[BusValue]) -> None:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._jobs[unit] = done
        try:
            await self._manager("StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail", body, [])
            result = await asyncio.wait_for(done, _JOB_TIMEOUT)
        except TimeoutError:
            raise UnitError(f"{unit}: systemd did not finish the job in {_JOB_TIMEOUT:.0f} s") from None
        finally:
            self._jobs.pop(unit, None)
        if result != "done":
            raise UnitError(f"{unit}: the job ended as {result}")

    # -- acting on a scope ------------------------------------------------------------------------------------------

    async def _act(self, member: str, signature: str, *body: BusValue) -> None:
        try:
            await self._manager(member, signature, *body)
        except BusCallError as error:
            raise UnitError(error.message or error.name, gone=error.name == _NO_SUCH_UNIT) from None

    async def kill(self, unit: str, number: int) -> None:
        """Signal every process of the unit. Raises UnitError."""
        await self._act("KillUnit", "ssi", unit, "all", number)

    async def freeze(self, unit: str) -> None:
        """Stop every process of the unit where it stands. Raises UnitError."""
        await self._act("FreezeUnit", "s", unit)

    async def thaw(self, unit: str) -> None:
        """Let them go on. Raises UnitError."""
        await self._act("ThawUnit", "s", unit)

    async def stop(self, unit: str, kill_signal: int, seconds: float) -> None:
        """Thaw, SIGKILL, and wait until the unit is gone. Raises UnitError when it is not within `seconds`."""
        gone = self._gone.setdefault(unit, asyncio.Event())
        try:
            with suppress(UnitError):
                await self.thaw(unit)
            await self.kill(unit, kill_signal)
            async with asyncio.timeout(seconds):
                await gone.wait()
        except UnitError as error:
            if not error.gone:
                raise
        except TimeoutError:
            raise UnitError(f"{unit} is still there after {seconds:.0f} s") from None
        finally:
            self._gone.pop(unit, None)

    async def active(self) -> set[str]:
        """The runs that have a scope now."""
        answer = await self._manager("ListUnitsByPatterns", "asas", [], ["aios-task-*.scope"])
        rows = answer.body[0]
        runs: set[str] = set()
        for row in rows if isinstance(rows, list | tuple) else ():
            if isinstance(row, list | tuple) and row[3] not in ("inactive", "failed"):
                run = run_of_unit(str(row[0]))
                runs |= set() if run is None else {run}
        return runs

    # -- hearing of it ----------------------------------------------------------------------------------------------

    def _on_signal(self, signal: Signal) -> None:
        if signal.member == "JobRemoved" and len(signal.body) == 4:
            waiting = self._jobs.get(str(signal.body[2]))
            if waiting is not None and not waiting.done():
                waiting.set_result(str(signal.body[3]))
        elif signal.member == "UnitRemoved" and len(signal.body) == 2:
            self._on_removed(str(signal.body[0]))

    def _on_removed(self, unit: str) -> None:
        run = run_of_unit(unit)
        if run is None:
            return
        gone = self._gone.get(unit)
        if gone is not None:
            gone.set()
        self._ended(run)
