"""A worker that carries out tasks of plans, as a process of its own anywhere on the machine (seed 003).

    from aiosd.worker.remote import RemoteWorker

    with RemoteWorker("worker_mac_001", capabilities=["git", "terminal"]) as worker:
        for job in worker.assignments():
            job.accept()
            job.step("run_tests")
            job.complete({"root_cause": "…"})

A thread says that the worker is there and hears what is wanted of it; a connection that stays open tells the daemon at
once when this process ends. A restart of the daemon is bridged: the worker registers again and keeps what it has. What
has been taken away raises `TakenAway`, at the next `checkpoint` or at the next word about it. Standard library only.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.client.messages import CallError, ProtocolError, call, read, result
from aiosd.client.plain import Client
from aiosd.worker.task import WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from aiosd.model.jsontext import JsonObject, JsonValue

SOCKETS = Path("/run/aios")
LONGEST_WAIT = 15.0
"""Seconds that one heartbeat waits for news at most; less where the lease is short."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
"""Seconds between tries while the daemon is not there: each pause is twice the last one."""
PATIENCE = 60.0
"""Seconds that a report waits for a daemon that is being restarted."""


PASSING = frozenset({"AIOS-RATE-LIMITED", "AIOS-STORAGE", "AIOS-SHUTTING-DOWN", "AIOS-RESOURCE-BUSY"})
"""Refusals that pass: of a daemon that is about to be replaced, say."""


class TakenAway(WorkerError):
    """The assignment is not this worker's any more: it was canceled, or given to another one. Stop working on it."""


class Assignment:
    """One attempt at one task. `request`: seed 003's execution request. Every method may raise TakenAway."""

    def __init__(self, worker: RemoteWorker, shown: JsonObject) -> None:
        """Made by `RemoteWorker.assignments`."""
        self._worker = worker
        self.id = str(shown["assignment_id"])
        self.task_id = str(shown["task_id"])
        attempt, given = shown.get("attempt"), shown.get("request")
        self.attempt = attempt if isinstance(attempt, int) else 1
        self.request: JsonObject = given if isinstance(given, Mapping) else {}
        self._numbers = itertools.count(1)

    def accept(self) -> None:
        """Begin. From now on the task is working."""
        self._say("accept")

    def reject(self, reason: str) -> None:
        """Leave it to another worker; `reason` is on the timeline."""
        self._say("reject", reason=reason)

    def step(self, name: str, status: str = "started", summary: str = "") -> None:
        """A step: `started`, `finished` or `failed`."""
        self.report(step={"name": name, "status": status, "summary": summary})

    def tool_call(self, name: str, status: str = "requested", summary: str = "") -> None:
        """A tool: `requested` or `finished`."""
        self.report(tool_call={"name": name, "status": status, "summary": summary})

    def progress(self, percent: float, message: str = "") -> None:
        """How far it is, 0 to 100."""
        self.report(progress={"percent": percent, "message": message})

    def summary(self, **said: JsonValue) -> None:
        """Seed 003's structured summary: summary, progress_percent, current_step, next_step, risk."""
        self.report(summary=said)

    def artifact(self, key: str, *, text: str | None = None, data: JsonObject | None = None, name: str = "") -> None:
        """What came of it, as text or as data."""
        part: JsonObject = {"text": text} if data is None else {"data": data}
        self.report(artifact={"key": key, "name": name or key, "parts": [part]})

    def report(self, **said: JsonValue) -> None:
        """Several of these in one word, all or none: progress, step, tool_call, summary, log, artifact."""
        self._say("report", **said)

    def ask(self, prompt: str, *, schema: JsonObject | None = None, options: Sequence[str] = ()) -> JsonValue:
        """Ask a person, and wait for the answer. `schema`: JSON Schema of it."""
        asked: dict[str, JsonValue] = {"prompt": prompt, "interaction": next(self._numbers)}
        if schema is not None:
            asked["answer_schema"] = schema
        if options:
            asked["options"] = list(options)
        self.report(question=asked)
        return self._answer(asked["interaction"])

    def approve(self, kind: str, summary: str, risk_level: str = "medium") -> bool:
        """Whether a person lets it do this: wait for their yes or no."""
        number = next(self._numbers)
        self.report(approval={"kind": kind, "summary": summary, "risk_level": risk_level, "interaction": number})
        answer = self._answer(number)
        return isinstance(answer, Mapping) and answer.get("approved") is True

    def _answer(self, interaction: JsonValue) -> JsonValue:
        def given(shown: JsonObject | None) -> JsonObject | None:
            found = None if shown is None else shown.get("input")
            return found if isinstance(found, Mapping) and found.get("interaction") == interaction else None

        with self._worker.changed:
            while (found := given(self._shown())) is None:
                self._worker.changed.wait()
        self._worker.received(str(found["delivery"]))
        return found.get("input")

    def checkpoint(self) -> None:
        """Wait here while the task is paused; raise TakenAway when it is not ours any more."""
        with self._worker.changed:
            while self._shown().get("state") == "paused":
                self._worker.changed.wait()

    @property
    def state(self) -> str:
        """`offered`, `running`, `paused` or `waiting`, as was heard last; `gone` when it was taken away."""
        with self._worker.changed:
            try:
                return str(self._shown().get("state"))
            except TakenAway:
                return "gone"

    def complete(self, result: JsonObject | None = None) -> None:
        """It is done."""
        self._say("complete", result=result or {})

    def fail(self, message: str, *, reason: str | None = None, retryable: bool = True) -> None:
        """It could not be done. `retryable`: whether another attempt could end otherwise."""
        said: dict[str, JsonValue] = {"message": message, "retryable": retryable}
        if reason is not None:
            said["reason"] = reason
        self._say("fail", **said)

    def _shown(self) -> JsonObject:
        """With `changed` held."""
        self._worker.raise_failure()
        found = self._worker.state.get(self.id)
        if found is None:
            raise TakenAway("the assignment was taken away")
        return found

    def _say(self, word: str, **said: JsonValue) -> None:
        self._worker.say(word, {"assignment_id": self.id, **said})


class RemoteWorker:
    """A context manager: registered inside it. Words about assignments are for one thread, the one that made it.

    Raises CallError when the daemon refuses the registration, OSError when it cannot be reached.
    """

    def __init__(
        self, worker_id: str, *, capabilities: Sequence[str] = (), capacity: int = 1, serves: str = "own",
        shell_name: str = "", metadata: JsonObject | None = None, sockets: Path = SOCKETS,
    ) -> None:  # fmt: skip
        """`capacity`: assignments at a time. `serves`: `own`, or `all` users' tasks. `shell_name`: its `shell`.
        `sockets`: their directory."""
        self.id = worker_id
        self.capacity = capacity
        self.registration = ""
        self.changed = threading.Condition()
        self.state: dict[str, JsonObject] = {}
        self._about: dict[str, JsonValue] = {
            "worker_id": worker_id, "hostname": platform.node()[:200], "os": platform.system().lower(),
            "shell": shell_name or Path(os.environ.get("SHELL", "")).name, "capabilities": list(capabilities),
            "capacity": capacity, "serves": serves, "liveness": "descriptor", "metadata": metadata or {},
        }  # fmt: skip
        self._lines, self._http = sockets / "aios-lines.sock", sockets / "aios.sock"
        self._client = Client(self._http)
        self._held: socket.socket | None = None
        self._tag = ""
        self._lease = PATIENCE
        self._offered: set[str] = set()
        self._failure: Exception | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep_in_touch, name=f"worker {worker_id}", daemon=True)

    def __enter__(self) -> Self:
        """Register."""
        self._register()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unregister: what is unfinished goes to other workers."""
        self._ending.set()
        with suppress(CallError, OSError, ProtocolError):
            self._client.call("aios/worker.unregister", {"worker_id": self.id, "registration": self.registration})
        self._thread.join(LONGEST_WAIT + LONGEST_PAUSE)
        self._client.close()
        if self._held is not None:
            self._held.close()

    def assignments(self) -> Iterator[Assignment]:
        """What is offered, one after the other, for ever. Accept it or reject it. Raises what ended the worker."""
        while True:
            with self.changed:
                self.raise_failure()
                self._offered &= self.state.keys()
                new = [one for name, one in self.state.items() if name not in self._offered]
                offered = next((one for one in new if one.get("state") == "offered"), None)
                if offered is None:
                    self.changed.wait()
                    continue
                self._offered.add(str(offered["assignment_id"]))
            yield Assignment(self, offered)

    def run(self, handle: Callable[[Assignment], JsonObject | None]) -> None:
        """Accept all that is offered; `handle` answers with the result. An exception of it is a failure of the task."""
        for job in self.assignments():
            try:
                job.accept()
                job.complete(handle(job))
            except TakenAway:
                continue
            except (CallError, OSError, ProtocolError):
                raise
            except Exception as error:  # noqa: BLE001  whatever the handler did, the task is told of it
                with suppress(TakenAway):
                    job.fail(f"{type(error).__name__}: {error}"[:4000])

    def say(self, word: str, params: JsonObject) -> None:
        """A word about an assignment, again when the daemon went away meanwhile. Raises TakenAway."""
        pause, waited = FIRST_PAUSE, 0.0
        while True:
            try:
                self._client.call(f"aios/worker.{word}", {"worker_id": self.id, **params})
            except (CallError, OSError, ProtocolError) as error:
                if isinstance(error, CallError) and error.error_id not in PASSING:
                    if waited and _was_heard(word, error):
                        return
                    if error.data.get("reason") != "fenced" and error.error_id != "AIOS-ASSIGNMENT-NOT-FOUND":
                        raise
                    raise TakenAway(str(error)) from None
                if waited > PATIENCE:
                    raise
                self._ending.wait(pause)
                waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE)
            else:
                return

    def received(self, delivery: str) -> None:
        """An answer has arrived, and need not be shown any more."""
        with suppress(CallError, OSError, ProtocolError):  # it is shown again then
            self._take(self._client.call("aios/worker.heartbeat", {**self._beat(), "received": [delivery]}))

    def raise_failure(self) -> None:
        """Raise what has ended this worker."""
        if self._failure is not None:
            raise self._failure

    def _register(self) -> None:
        """Say who we are, on a connection that stays for as long as we do."""
        given: dict[str, JsonValue] = {**self._about}
        if self.registration:
            given["registration"] = self.registration
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fresh.connect(str(self._lines))
            fresh.sendall(call("aios/worker.register", given).text().encode() + b"\n")
            with fresh.makefile("rb") as lines:
                answer = result(read(lines.readline()))
        except BaseException:
            fresh.close()
            raise
        if self._held is not None:
            self._held.close()
        self._held = fresh
        self.registration = str(answer["registration"])
        self._take(answer)

    def _beat(self) -> dict[str, JsonValue]:
        with self.changed:
            busy = len(self.state) >= self.capacity
            current = next((str(one.get("task_id")) for one in self.state.values()), None)
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        return {
            "worker_id": self.id, "registration": self.registration, "status": "busy" if busy else "idle",
            "current_task_id": current, "load": round(load, 2),
        }  # fmt: skip

    def _take(self, answer: JsonObject) -> None:
        shown, lease = answer.get("assignments"), answer.get("lease_ms")
        rows = [one for one in shown if isinstance(one, Mapping)] if isinstance(shown, list) else []
        with self.changed:
            self._tag = str(answer.get("tag"))
            self._lease = lease / 1000 if isinstance(lease, int) else self._lease
            self.state = {str(one["assignment_id"]): one for one in rows}
            self.changed.notify_all()

    def _keep_in_touch(self) -> None:
        pause = FIRST_PAUSE
        with Client(self._http) as client:
            while not self._ending.is_set():
                try:
                    if self._is_cut_off():
                        self._register()
                    wait = round(min(LONGEST_WAIT, self._lease / 3) * 1000)
                    self._take(
                        client.call("aios/worker.heartbeat", {**self._beat(), "known": self._tag, "wait_ms": wait})
                    )
                    pause = FIRST_PAUSE
                except CallError as error:
                    if self._ending.is_set() or not self._goes_on(error):
                        return
                except (OSError, ProtocolError):
                    self._ending.wait(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)

    def _goes_on(self, error: CallError) -> bool:
        """Whether this refusal can be mended: by registering again, when we were given up; or by waiting."""
        if error.error_id == "AIOS-WORKER-NOT-FOUND" and error.data.get("reason") != "superseded":
            try:
                self._register()
            except (OSError, ProtocolError):
                self._ending.wait(FIRST_PAUSE)
            except CallError as refused:
                return self._end(refused)
            return True
        if error.error_id in PASSING:
            self._ending.wait(LONGEST_PAUSE)
            return True
        return self._end(error)

    def _end(self, failure: Exception) -> bool:
        with self.changed:
            self._failure = failure
            self.changed.notify_all()
        return False

    def _is_cut_off(self) -> bool:
        """Whether the daemon has let go of our connection: it was restarted."""
        if self._held is None:
            return True
        try:
            return self._held.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


def read_request(path: Path) -> JsonObject:
    """An execution request from the file that `aios-task worker run` made of it."""
    found: JsonValue = json.loads(path.read_text("utf-8"))
    return found if isinstance(found, Mapping) else {}


def _was_heard(word: str, error: CallError) -> bool:
    """Whether a word that had to be said again was heard the first time."""
    ended = {"complete": "completed", "fail": "failed"}.get(word)
    return ended is not None and error.data.get("status") == ended
