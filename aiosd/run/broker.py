"""The broker: what the launcher does for its one peer, the daemon, besides starting (`starting.py`).

It decides nothing about tasks. It knows which runs there are, keeps a duplicate of aiosd's end of each control socket,
here and with the service manager, and passes on what systemd says.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.bus.message import BusCallError
from aiosd.model.ids import Prefix, is_id
from aiosd.run.forkclient import ForkError
from aiosd.run.identity import is_dynamic
from aiosd.run.keeping import Controls
from aiosd.run.layout import unit_name
from aiosd.run.packets import Packet, PacketError, PacketSocket
from aiosd.run.protocol import LIST_PAGE, Op, Refusal, RefusalCode, text_of
from aiosd.run.starting import read_request
from aiosd.run.units import UnitError
from aiosd.run.versions import LAUNCHER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.run.identity import DynamicUids
    from aiosd.run.notify import Passed
    from aiosd.run.rundirs import RunDirectories, RunRecord
    from aiosd.run.starting import Starter
    from aiosd.run.units import Units

    Answer = tuple[JsonObject, tuple[int, ...]]

_STOP_SECONDS = 10.0
_REMOVED_SECONDS = 2.0
_IN_FLIGHT = 128
_SIGNALS = frozenset({"SIGTERM", "SIGKILL", "SIGSTOP", "SIGCONT", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"})

_log = logging.getLogger(__name__)


def boot_id() -> str:
    """The kernel's id of this boot (proc_sys_kernel(5))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


class Broker:
    """Serves peers."""

    def __init__(self, peer: int, runs: RunDirectories, uids: DynamicUids) -> None:
        """`peer`: the only uid that is listened to."""
        self._peer = peer
        self._runs = runs
        self._uids = uids
        self._boot_id = boot_id()
        self._kept: Controls | None = None
        self._live: dict[str, asyncio.Event] = {}
        self._starting: dict[str, asyncio.Event] = {}
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._starter: Starter | None = None
        self._units: Units | None = None
        self._operations: dict[Op, Callable[[JsonObject], Awaitable[Answer]]] = {
            Op.HELLO: self._hello,
            Op.START: self._start,
            Op.ATTACH: self._attach,
            Op.LIST: self._list,
            Op.SIGNAL: self._signal,
            Op.STOP: self._stop,
            Op.FREEZE: self._freeze,
            Op.THAW: self._thaw,
            Op.REMOVE: self._remove,
        }

    def adopt(self, stored: Sequence[Passed], live: set[str], units: Units, starter: Starter) -> None:
        """Begin with what outlived the last launcher: stored descriptors, and runs with a scope."""
        self._units, self._starter = units, starter
        for run in live:
            self._live[run] = asyncio.Event()
        self._adopt_users(live)
        self._kept = Controls(stored, self._live.__contains__)

    def close(self) -> None:
        """An orderly end: the control sockets stay with the service manager."""
        if self._kept is not None:
            self._kept.close()

    def _adopt_users(self, live: set[str]) -> None:
        """A dynamic user is taken while its run has a scope, however long the run directory is kept."""
        records = [record for run in self._runs.runs() if (record := self._runs.read(run)) is not None]
        self._uids.adopt({record.run: record.uid for record in records if record.run in live})
        for record in records:
            if record.run not in live:
                self._release(record)

    # -- peers ------------------------------------------------------------------------------------------------------

    async def accept(self, listener: socket.socket) -> None:
        """Serve everyone who connects to `listener`, for ever."""
        loop = asyncio.get_running_loop()
        listener.settimeout(0)
        async with asyncio.TaskGroup() as group:
            while True:
                sock, _ = await loop.sock_accept(listener)
                group.create_task(self._serve(sock))

    async def _is_ours(self, sock: socket.socket, peer: PacketSocket) -> bool:
        uid: int = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid == self._peer:
            return True
        _log.warning("uid %d is not the daemon and was sent away", uid)
        with suppress(ConnectionError):
            await peer.send({"ok": False, "error": RefusalCode.DENIED, "message": "not for this user"})
        return False

    async def _serve(self, sock: socket.socket) -> None:
        peer = PacketSocket(sock)
        try:
            if not await self._is_ours(sock, peer):
                return
            async with asyncio.TaskGroup() as group:
                while (packet := await peer.receive()) is not None:
                    await self._slots.acquire()
                    group.create_task(self._handle(peer, packet))
        except* (ConnectionError, PacketError) as group_error:
            _log.warning("the connection of the daemon ends: %s", group_error.exceptions[0])
        finally:
            peer.close()

    async def _handle(self, peer: PacketSocket, packet: Packet) -> None:
        packet.close()  # no request carries descriptors
        fds: tuple[int, ...] = ()
        answer: dict[str, JsonValue] = {"id": packet.body.get("id")}
        try:
            body, fds = await self._answer(packet.body)
            answer |= {"ok": True, **body}
        except Refusal as refusal:
            answer |= {"ok": False, "error": refusal.code, "message": str(refusal)}
        finally:
            self._slots.release()
        try:
            await self._deliver(peer, answer, fds)
        except ConnectionError as error:
            _log.warning("an answer was not delivered: %s", error)
        finally:
            for fd in fds:
                os.close(fd)

    @staticmethod
    async def _deliver(peer: PacketSocket, answer: JsonObject, fds: tuple[int, ...]) -> None:
        """Whoever asks hears something, also when the answer is none that can be sent. Raises ConnectionError."""
        try:
            await peer.send(answer, fds)
        except PacketError as error:
            _log.error("an answer cannot be sent: %s", error)
            message = f"the answer is {error}"
            await peer.send({"id": answer["id"], "ok": False, "error": RefusalCode.LAUNCH, "message": message})

    async def _answer(self, body: JsonObject) -> Answer:
        try:
            operation = self._operations[Op(text_of(body, "op"))]
        except ValueError:
            raise Refusal(RefusalCode.BAD_REQUEST, "op: there is no such operation") from None
        try:
            return await operation(body)
        except UnitError as error:
            raise Refusal(RefusalCode.GONE if error.gone else RefusalCode.SYSTEMD, str(error)) from None
        except BusCallError as error:
            raise Refusal(RefusalCode.SYSTEMD, str(error)) from None
        except ForkError as error:
            raise Refusal(RefusalCode.LAUNCH, str(error)) from None
        except Refusal:
            raise
        except Exception as error:  # noqa: BLE001 - one request must not end the launcher of all the others
            _log.exception("a request failed")
            raise Refusal(RefusalCode.LAUNCH, f"the launcher failed: {type(error).__name__}") from None

    def scope_ended(self, run: str) -> None:
        """systemd says that a scope is gone: forget the control socket. The daemon knows it from the run's pidfd.

        It says so of every unit when it reloads its configuration, too: then the shim is still where it was.
        """
        record = self._runs.read(run)
        if record is not None and self._alive(record):
            return
        gone = self._live.pop(run, None)
        if gone is not None:
            gone.set()
        if self._kept is not None:
            self._kept.forget(run)
        if record is not None:
            self._release(record)

    def _release(self, record: RunRecord) -> None:
        """Nothing of the run is left but files; a dynamic user's are kept from the next one with its number."""
        if is_dynamic(record.uid):
            with suppress(OSError):  # removed already
                self._runs.seal(record)
            self._uids.give_back(record.uid, record.run)

    # -- operations -------------------------------------------------------------------------------------------------

    @property
    def _systemd(self) -> Units:
        if self._units is None:
            raise Refusal(RefusalCode.SYSTEMD, "not ready")
        return self._units

    @property
    def _controls(self) -> Controls:
        if self._kept is None:
            raise Refusal(RefusalCode.LAUNCH, "not ready")
        return self._kept

    def _run(self, body: JsonObject) -> str:
        run = text_of(body, "run")
        if not is_id(run, Prefix.RUN):
            raise Refusal(RefusalCode.BAD_REQUEST, "run: not the id of a run")
        return run

    async def _settled(self, body: JsonObject) -> str:
        """The run, which is not under way any more: who asks for it may be a daemon after the one that started it."""
        run = self._run(body)
        begun = self._starting.get(run)
        if begun is not None:
            await begun.wait()
        return run

    async def _hello(self, body: JsonObject) -> Answer:
        if body.get("version") != LAUNCHER:
            raise Refusal(RefusalCode.BAD_REQUEST, f"version: this launcher speaks {LAUNCHER}")
        return {"version": LAUNCHER, "boot_id": self._boot_id, "systemd_version": self._systemd.version}, ()

    async def _start(self, body: JsonObject) -> Answer:
        run = self._run(body)
        if self._starter is None:
            raise Refusal(RefusalCode.LAUNCH, "not ready")
        if run in self._starting:
            raise Refusal(RefusalCode.BUSY, "the run is being started")
        self._live[run] = self._live.get(run) or asyncio.Event()
        begun = self._starting[run] = asyncio.Event()
        try:
            started = await self._starter.start(read_request(body), self._boot_id)
            self._controls.keep(run, started.control)
        except BaseException:
            if self._runs.read(run) is None:
                self._live.pop(run, None)
            raise
        finally:
            del self._starting[run]
            begun.set()
        unit = started.unit
        answer: dict[str, JsonValue] = {"pid": started.pid, "unit": unit, "control_group": _cgroup_of(started.pid)}
        answer |= {"limits": started.limits, "left_out": list(started.left_out)}
        return answer, (started.control, started.pidfd)

    def _supervisor(self, record: RunRecord) -> int | None:
        """A pidfd of the run's shim, the caller's to close; None when it is gone.

        Gone is also a zombie that nobody has waited for yet, and a process that merely has its number now.
        """
        if record.boot_id != self._boot_id:
            return None
        try:
            pidfd = os.pidfd_open(record.pid)
        except (OSError, OverflowError):
            return None
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if poll.poll(0) or not _cgroup_of(record.pid).endswith("/" + record.unit):
            os.close(pidfd)
            return None
        return pidfd

    def _alive(self, record: RunRecord) -> bool:
        pidfd = self._supervisor(record)
        if pidfd is not None:
            os.close(pidfd)
        return pidfd is not None

    async def _attach(self, body: JsonObject) -> Answer:
        run = await self._settled(body)
        record = self._runs.read(run)
        if record is None:
            raise Refusal(RefusalCode.GONE, "there is no such run any more")
        pidfd = self._supervisor(record)
        if pidfd is None:
            raise Refusal(RefusalCode.GONE, "the run's supervisor is gone")
        control = self._controls.duplicate(run)
        if control is None:
            os.close(pidfd)
            raise Refusal(RefusalCode.GONE, "nobody can speak to the run's supervisor any more")
        return {"pid": record.pid, "unit": record.unit, "active": run in self._live}, (control, pidfd)

    async def _list(self, body: JsonObject) -> Answer:
        """A page of the runs after `after`; of those with a scope only, when `living` are asked for."""
        after = text_of({"after": "", **body}, "after")
        known = self._live if body.get("living") is True else {*self._runs.runs(), *self._live}
        left = sorted(run for run in known if run > after)
        rows: list[JsonValue] = []
        for run in left[:LIST_PAGE]:
            record = self._runs.read(run)
            pid = record.pid if record is not None and self._alive(record) else 0
            caller = -1 if record is None else record.caller
            row: JsonObject = {
                "run": run, "unit": unit_name(run), "active": run in self._live, "pid": pid, "caller": caller
            }  # fmt: skip
            rows.append(row)
        return {"runs": rows, "more": len(left) > LIST_PAGE}, ()

    async def _signal(self, body: JsonObject) -> Answer:
        name = text_of(body, "signal")
        if name not in _SIGNALS:
            raise Refusal(RefusalCode.BAD_REQUEST, "signal: not one that is sent here")
        await self._systemd.kill(unit_name(await self._settled(body)), signal.Signals[name])
        return {}, ()

    async def _stop(self, body: JsonObject) -> Answer:
        await self._systemd.stop(unit_name(await self._settled(body)), signal.SIGKILL, _STOP_SECONDS)
        return {}, ()

    async def _freeze(self, body: JsonObject) -> Answer:
        await self._systemd.freeze(unit_name(await self._settled(body)))
        return {}, ()

    async def _thaw(self, body: JsonObject) -> Answer:
        await self._systemd.thaw(unit_name(await self._settled(body)))
        return {}, ()

    async def _remove(self, body: JsonObject) -> Answer:
        run = await self._settled(body)
        record, live = self._runs.read(run), self._live.get(run)
        if live is not None:
            if record is not None and self._alive(record):
                raise Refusal(RefusalCode.BUSY, "the run is still there")
            try:  # it has ended, systemd has not said so yet
                async with asyncio.timeout(_REMOVED_SECONDS):
                    await live.wait()
            except TimeoutError:
                raise Refusal(RefusalCode.BUSY, "the run's scope is still there") from None
        self._controls.forget(run)
        await asyncio.to_thread(self._runs.remove, run)
        return {}, ()


def _cgroup_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", "rb", buffering=0) as file:
            lines = file.readall().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line[3:] for line in lines if line.startswith("0::")), "")
