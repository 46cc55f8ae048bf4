"""The shim's loop: one thread, one epoll, from the closed gate to the last byte of the program's output.

Standard library only. Read `Supervisor.run`; how a program is stopped is in `stopping.py`, what it says in
`conversation.py`.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from aiosd.model.jsontext import dump
from aiosd.run import context
from aiosd.run.control import ControlType
from aiosd.run.conversation import Conversation
from aiosd.run.exitrecord import Ending, StoppedBy
from aiosd.run.program import ProgramError
from aiosd.run.stopping import Stopping
from aiosd.run.versions import SHIM

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from aiosd.model.jsontext import JsonObject
    from aiosd.run.artifacts import BlobFile
    from aiosd.run.cgroup import Scope
    from aiosd.run.control import ControlSocket
    from aiosd.run.eventfile import EventFile
    from aiosd.run.output import Stream
    from aiosd.run.spec import ShimSpec

_LOG_INTERVAL = 0.25
_LAST_WORDS = 5.0


class Program(NamedTuple):
    """What becomes a process when the gate opens. `execute`: starts attempt N, returns its pid or raises ProgramError.

    `socket`: the shim's end of the chunk protocol. `error`: why it cannot be executed, None when it can.
    """

    socket: socket.socket
    execute: Callable[[int], int]
    error: str | None


class Outputs(NamedTuple):
    """Everything that a run leaves behind, but for the exit record."""

    stdout: Stream
    stderr: Stream
    events: EventFile
    blobs: BlobFile
    scope: Scope


def _write_new(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


class Wakeup:
    """Signals as bytes of a pipe (signal.set_wakeup_fd); made before the fork, so that none is missed."""

    def __init__(self) -> None:
        """Take SIGCHLD and SIGTERM; what else ends a process, the fork server has ignored."""
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: None)

    def close(self) -> None:
        """Take no signals any more."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.close(self.fd)
        os.close(self._write)

    def numbers(self) -> bytes:
        """The signals since the last call."""
        try:
            return os.read(self.fd, 512)
        except BlockingIOError:
            return b""


class Supervisor:
    """Drives one run to its end."""

    def __init__(
        self, spec: ShimSpec, program: Program, outputs: Outputs, control: ControlSocket, wakeup: Wakeup
    ) -> None:
        """All of it made by `shim.run`."""
        self._spec = spec
        self._program = program
        self._outputs = outputs
        self._control = control
        self._wakeup = wakeup
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._told = False
        self._pid: int | None = None
        self._status: int | None = None
        self._opened_at: int | None = None
        self._launch_error = program.error
        self._log_due: float | None = None
        self._logged = (0, 0)
        self._memory: int | None = None
        self._oom_before = 0
        self.oom_kill = False
        self._stopping = Stopping(outputs.scope)
        self._conversation = Conversation(program.socket, outputs.events, outputs.blobs, self._poke, self._watch_talk)

    def run(self) -> Ending:
        """From the closed gate to the end."""
        self._watch(self._wakeup.fd, self._on_signal)
        self._watch(self._control.sock.fileno(), self._on_control)
        while self._pid is None and self._launch_error is None:
            self._turn()
        if self._pid is not None:
            while self._status is None:
                self._turn()
            self._last_words()
        elif not self._told:
            self._stay_until_told()
        duration = None if self._opened_at is None else (time.monotonic_ns() - self._opened_at) // 1000
        return Ending(self._status, self._launch_error, self._stopping.outcome, self.oom_kill, duration)

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _watch(self, fd: int, handler: Callable[[], None], mask: int = select.EPOLLIN) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def _unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _watch_talk(self, mask: int) -> None:
        """The conversation says what it wants to hear of its socket: nothing while it copies a file or has ended."""
        fd = self._program.socket.fileno()
        self._unwatch(fd)
        if mask:
            self._watch(fd, self._conversation.on_ready, mask)

    def _timeout(self) -> float:
        if self._conversation.busy:
            return 0.0
        due = [moment for moment in (self._stopping.due, self._log_due) if moment is not None]
        return max(0.0, min(due) - time.monotonic()) if due else -1.0

    def _turn(self) -> None:
        for fd, _ in self._epoll.poll(self._timeout()):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler()
        self._conversation.step()
        now = time.monotonic()
        if self._log_due is not None and now >= self._log_due:
            self._tell_log(now)
        if self._conversation.ended and self._stopping.reason is None:
            self._stopping.begin(StoppedBy.COMPLETION, self._spec.grace_ms, wait_ms=self._spec.grace_ms)
        self._stopping.act(now)

    # -- the gate ---------------------------------------------------------------------------------------------------

    def _on_control(self) -> None:
        received = self._control.receive()
        if not self._control.open:
            self._unwatch(self._control.sock.fileno())
            if self._pid is None:
                self._launch_error = self._launch_error or "the start gate was closed"
        if received is None:
            return
        kind, message = received
        if kind is ControlType.GO:
            if self._pid is None:
                self._told = True
                self._open_gate(message)
        elif kind is ControlType.CONTEXT:
            self._keep_context(message)
        elif kind is ControlType.CANCEL:
            self._cancel(message)
        elif self._pid is not None:
            self._conversation.say(message)

    def _keep_context(self, message: JsonObject) -> None:
        """A piece of what the program may read of others; only while it has not begun."""
        if self._pid is not None:
            return
        try:
            context.keep(self._spec.environment["AIOS_CONTEXT"], message)
        except context.ContextError as error:
            self._outputs.events.append("protocol_error", {"message": str(error)})

    def _open_gate(self, message: JsonObject) -> None:
        arguments, attempt = message.get("arguments", {}), message.get("attempt", 1)
        scope = self._outputs.scope
        scope.locate()
        self._memory, self._oom_before = scope.open_memory_events(), scope.oom_kills()
        try:
            _write_new(self._spec.environment["AIOS_ARGUMENTS"], dump(arguments).encode())
        except OSError as error:
            self._launch_error = f"the arguments cannot be written: {error.strerror}"
            return
        self._opened_at = time.monotonic_ns()
        try:
            self._pid = self._program.execute(attempt if isinstance(attempt, int) else 1)
        except ProgramError as error:
            self._launch_error = str(error)
            return
        self._conversation.begin(message)
        self._watch(self._outputs.stdout.source, lambda: self._on_output(self._outputs.stdout))
        self._watch(self._outputs.stderr.source, lambda: self._on_output(self._outputs.stderr))
        if self._memory is not None:
            self._watch(self._memory, self._on_memory, select.EPOLLPRI)
        # No poke: it changes nothing that the daemon keeps, and the next one comes soon, or the end.
        self._outputs.events.append("started", {"pid": self._pid, "protocol": SHIM}, vital=True)

    def _stay_until_told(self) -> None:
        """It failed before the gate opened: the launcher is still putting us into the scope, so do not vanish yet."""
        told = self._stopping.reason is not None
        while self._control.open and not told:
            self._epoll.poll(-1)
            received = self._control.receive()
            told = received is not None or bool(signal.SIGTERM in self._wakeup.numbers())

    # -- while it runs ----------------------------------------------------------------------------------------------

    def _cancel(self, message: JsonObject) -> None:
        grace = message.get("grace_ms")
        grace_ms = grace if isinstance(grace, int) and grace >= 0 else self._spec.grace_ms
        if self._pid is None:
            self._stopping.reason = StoppedBy.CANCEL
            self._launch_error = self._launch_error or "canceled before the start"
            return
        listens = self._conversation.has_spoken
        self._conversation.say(message)
        self._stopping.begin(StoppedBy.CANCEL, grace_ms, wait_ms=grace_ms // 2 if listens else 0)

    def _on_signal(self) -> None:
        numbers = self._wakeup.numbers()
        if signal.SIGTERM in numbers and self._pid is None:
            self._stopping.reason = StoppedBy.TERM
            self._launch_error = self._launch_error or "stopped before the start"
        elif signal.SIGTERM in numbers:
            self._stopping.begin(StoppedBy.TERM, self._spec.grace_ms)
        self._reap()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._pid:
                    self._status = status

    def _on_output(self, stream: Stream) -> None:
        with suppress(BlockingIOError):
            if not stream.drain():
                self._unwatch(stream.source)
        if self._log_due is None:
            self._log_due = time.monotonic() + (0.0 if self._logged == (0, 0) else _LOG_INTERVAL)

    def _tell_log(self, now: float) -> None:
        """At most four a second, and the last one always: after telling, wait an interval before the next."""
        written = (self._outputs.stdout.written, self._outputs.stderr.written)
        if written != self._logged:
            self._logged = written
            self._control.tell({"type": "log", "stdout": written[0], "stderr": written[1]})
            self._log_due = now + _LOG_INTERVAL
        else:
            self._log_due = None

    def _poke(self) -> None:
        self._control.tell({"type": "poke"})

    def _on_memory(self) -> None:
        """One process killed for want of memory ends the run: what is left of it would work with half of itself."""
        if self._memory is not None:
            os.pread(self._memory, 4096, 0)
        if self._outputs.scope.oom_kills() > self._oom_before:
            self.oom_kill = True
            self._stopping.kill()

    # -- the end ----------------------------------------------------------------------------------------------------

    def _last_words(self) -> None:
        """The program is gone: end what it left behind, then take everything that is still in the pipes."""
        self._stopping.kill_rest(self._reap, _LAST_WORDS)
        self.oom_kill = self.oom_kill or self._outputs.scope.oom_kills() > self._oom_before
        for stream in (self._outputs.stdout, self._outputs.stderr):
            with suppress(BlockingIOError):
                while stream.drain():
                    pass
        self._conversation.finish()
