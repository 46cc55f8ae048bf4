"""A person who calls aiosd over D-Bus: the test's side of `client.py`, and the words for what is done with tasks.

`Caller` is one connection to the bus, as one user, in one session. Its calls wait for the answer (`call`) or do not
(`begin` … `finish`), so that a test can do something while a call is being answered.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from aiosd.bus.connection import Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.rig.commands import Running
    from tests.rig.container import Container

    Options: TypeAlias = Mapping[str, Variant]

BUS_NAME = "org.aios.TaskManager"
MANAGER_PATH = "/org/aios/TaskManager"
MANAGER = "org.aios.TaskManager1"
TASK = "org.aios.TaskManager1.Task"
DBUS = "org.freedesktop.DBus"
ERROR = "org.aios.TaskManager.Error."
FINAL = ("completed", "failed", "canceled")
MARKS = "/var/tmp/aiosd-marks"
"""Where the capability `test.mark` writes the id of each task that it ran for."""
ANSWER_TIMEOUT = 60.0
"""Seconds that any answer may take."""


class Refused(Exception):
    """A call that was refused: the error's name without its prefix, its text, and its data."""

    def __init__(self, answer: JsonObject) -> None:
        """`answer`: the client's line."""
        self.name = str(answer["error"])
        self.message = str(answer["message"])
        self.data: JsonObject = json.loads(str(answer["data"])) if answer["data"] else {}
        super().__init__(f"{self.name}: {self.message} {self.data}")

    @property
    def short(self) -> str:
        """The name without the prefix of aiosd's errors."""
        return self.name.removeprefix(ERROR)


@dataclass(frozen=True)
class Signal:
    """A signal that reached the connection."""

    path: str
    interface: str
    member: str
    body: list[JsonValue]


@dataclass(frozen=True)
class Dialog:
    """What the connection's agent was told to ask, and whom (names of users)."""

    action: str
    text: str
    cookie: str
    asked: list[str]


@dataclass(frozen=True)
class Reply:
    """An answer: its values, and what its descriptors gave."""

    body: list[JsonValue]
    contents: list[str]


def path_of(task_id: str) -> str:
    """The object of a task (docs/dbus.md)."""
    return f"{MANAGER_PATH}/task/{task_id.replace('-', '_')}"


def as_json(value: BusValue) -> JsonValue:
    """A message body's value as `client.from_json` takes it."""
    if isinstance(value, Variant):
        return {"$variant": [value.signature, as_json(value.value)]}
    if isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return list(value)
    if hasattr(value, "items"):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value]


@dataclass
class Caller:
    """One connection. Use `connected`."""

    box: Container
    user: str
    client: Running
    name: str = ""
    session: str = ""
    signals: list[Signal] = field(default_factory=list)
    dialogs: list[Dialog] = field(default_factory=list)
    canceled_dialogs: list[str] = field(default_factory=list)
    _answers: dict[int, JsonObject] = field(default_factory=dict)
    _lines: queue.Queue[str] = field(default_factory=queue.Queue)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    # -- the conversation -------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take the client's lines, on a thread of its own, until it ends."""
        assert self.client.stdout is not None
        for line in self.client.stdout:
            self._lines.put(line.decode())
        self._lines.put("")

    def take(self, deadline: float) -> None:
        """Take one line. Fails when none comes."""
        try:
            line = self._lines.get(timeout=max(0.001, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"{self.user}'s client does not answer") from None
        if not line:
            assert self.client.stderr is not None
            raise AssertionError(f"{self.user}'s client ended: {self.client.stderr.read().decode()}")
        message: JsonObject = json.loads(line)
        if "signal" in message:
            signal = message["signal"]
            assert isinstance(signal, dict)
            self.signals.append(Signal(**signal))
        elif "dialog" in message:
            dialog = message["dialog"]
            assert isinstance(dialog, dict)
            self.dialogs.append(Dialog(**dialog))
        elif "dialog_canceled" in message:
            self.canceled_dialogs.append(str(message["dialog_canceled"]))
        elif "name" in message:
            self.name, self.session = str(message["name"]), str(message["session"])
        else:
            self._answers[int(str(message["id"]))] = message

    def _send(self, request: Mapping[str, JsonValue]) -> int:
        number = next(self._numbers)
        assert self.client.stdin is not None
        self.client.stdin.write(json.dumps({"id": number, **request}).encode() + b"\n")
        self.client.stdin.flush()
        return number

    def begin(
        self, path: str, interface: str | None, member: str, signature: str = "", *body: BusValue,
        interactive: bool = False, timeout: float = ANSWER_TIMEOUT, destination: str = BUS_NAME, keep: bool = False,
    ) -> int:  # fmt: skip
        """Send a call; the number to ask for its answer with. `keep`: hold its descriptors instead of reading them."""
        values: list[JsonValue] = [as_json(value) for value in body]
        call: JsonObject = {
            "path": path, "interface": interface, "member": member, "signature": signature, "body": values,
            "interactive": interactive, "timeout": timeout, "destination": destination,
            "keep": keep,
        }  # fmt: skip
        return self._send({"call": call})

    def finish(self, number: int, *, within: float = ANSWER_TIMEOUT) -> Reply:
        """The answer to that call. Raises Refused."""
        deadline = time.monotonic() + within
        while number not in self._answers:
            self.take(deadline)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Refused(answer)
        body, contents = answer["body"], answer["contents"]
        assert isinstance(body, list)
        assert isinstance(contents, list)
        return Reply(body, [str(text) for text in contents])

    def has_answer(self, number: int) -> bool:
        """Whether the answer to that call is among the lines taken so far."""
        return number in self._answers

    def answered(self, number: int) -> bool:
        """Whether the answer to that call is there by now."""
        with contextlib.suppress(AssertionError):
            while True:
                self.take(time.monotonic())
        return number in self._answers

    def call(
        self, path: str, interface: str | None, member: str, signature: str = "", *body: BusValue,
        interactive: bool = False, destination: str = BUS_NAME,
    ) -> list[JsonValue]:  # fmt: skip
        """Call and wait; the answer's values. Raises Refused."""
        begun = self.begin(path, interface, member, signature, *body, interactive=interactive, destination=destination)
        return self.finish(begun).body

    def match(self, rule: str) -> None:
        """Ask the bus for signals."""
        self.call("/org/freedesktop/DBus", DBUS, "AddMatch", "s", rule, destination=DBUS)

    def wait_signal(self, wanted: Callable[[Signal], bool], *, within: float = 60) -> Signal:
        """The first signal so far, or from now on, that is wanted."""
        deadline, looked = time.monotonic() + within, 0
        while True:
            for signal in self.signals[looked:]:
                if wanted(signal):
                    return signal
            looked = len(self.signals)
            self.take(deadline)

    def come_to_the_front(self) -> None:
        """Make its session the seat's active one; the last that began is, until then."""
        self.box.run("loginctl", "activate", self.session)

    # -- passwords --------------------------------------------------------------------------------------------------

    def become_agent(self) -> None:
        """Be asked for passwords from now on, when calls allow it."""
        self.finish(self._send({"agent": True}))

    def next_dialog(self, *, within: float = 60) -> Dialog:
        """The oldest open dialog; waits for one."""
        deadline = time.monotonic() + within
        while not self.dialogs:
            self.take(deadline)
        return self.dialogs.pop(0)

    def answer(self, dialog: Dialog, password: str | None) -> None:
        """Type a password into the dialog, or dismiss it with None."""
        self.finish(self._send({"dialog": {"cookie": dialog.cookie, "password": password}}))

    # -- tasks ------------------------------------------------------------------------------------------------------

    def create(self, capability: str, arguments: JsonObject | None = None, **options: Variant) -> str:
        """A new task's id."""
        return self.created(self.begin_create(capability, arguments, **options))

    def begin_create(self, capability: str, arguments: JsonObject | None = None, **options: Variant) -> int:
        """Ask for a task without letting anybody be asked for a password; `created` takes the answer."""
        return self._begin_create(capability, arguments, options, interactive=False)

    def begin_create_asking(self, capability: str, arguments: JsonObject | None = None, **options: Variant) -> int:
        """Ask for a task, and allow that a person is asked; `created` takes the answer."""
        return self._begin_create(capability, arguments, options, interactive=True)

    def _begin_create(
        self, capability: str, arguments: JsonObject | None, options: Options, *, interactive: bool
    ) -> int:
        body: tuple[BusValue, ...] = (capability, json.dumps(arguments or {}), options)
        return self.begin(MANAGER_PATH, MANAGER, "CreateTask", "ssa{sv}", *body, interactive=interactive)

    def created(self, number: int) -> str:
        """The id of the task that was asked for by the call of that number. Raises Refused."""
        task_id, path = self.finish(number).body
        assert path == path_of(str(task_id))
        return str(task_id)

    def on_task(self, task_id: str, member: str, signature: str, *body: BusValue) -> list[JsonValue]:
        """Call a method of the task's object."""
        return self.call(path_of(task_id), TASK, member, signature, *body)

    def get(self, task_id: str, *, history: bool = False) -> JsonObject:
        """The whole task."""
        options = {"include_history": Variant("b", True)} if history else {}
        task: JsonObject = json.loads(str(self.call(MANAGER_PATH, MANAGER, "GetTask", "sa{sv}", task_id, options)[0]))
        return task

    def status(self, task_id: str) -> str:
        """The task's status."""
        return str(self.get(task_id)["status"])

    def wait(self, task_id: str, *, within: float = 60) -> JsonObject:
        """Wait for its end; the whole task."""
        options = {"timeout_ms": Variant("t", round(within * 1000))}
        status, text = self.on_task(task_id, "Wait", "a{sv}", options)
        task: JsonObject = json.loads(str(text))
        assert status in FINAL, f"{task_id} has not ended in {within} s: {text}"
        return task

    def run(self, capability: str, arguments: JsonObject | None = None, **options: Variant) -> JsonObject:
        """Create and wait; the ended task."""
        return self.wait(self.create(capability, arguments, **options))

    def until(self, task_id: str, wanted: Callable[[JsonObject], bool], *, within: float = 60) -> JsonObject:
        """Look at the task until it is as wanted."""
        deadline = time.monotonic() + within
        while not wanted(task := self.get(task_id)):
            assert time.monotonic() < deadline, f"never as wanted: {task}"
            time.sleep(0.03)
        return task

    def until_running(self, task_id: str) -> JsonObject:
        """The task, with its program let go."""
        return self.until(task_id, lambda task: (task["status"], task["phase"]) == ("working", "running"))

    def cancel(self, task_id: str, reason: str = "", **options: Variant) -> None:
        """Cancel it, and wait until it is."""
        self.on_task(task_id, "Cancel", "sa{sv}", reason, options)

    def log(self, task_id: str, stream: str = "stdout") -> str:
        """All that its program has written so far."""
        number = self.begin(path_of(task_id), TASK, "OpenLog", "sa{sv}", stream, {})
        return self.finish(number).contents[0]

    def tasks(self, **options: Variant) -> list[str]:
        """Ids on the first page of a list."""
        rows = self.call(MANAGER_PATH, MANAGER, "ListTasks", "a{sv}", options)[0]
        assert isinstance(rows, list)
        return [str(row[0]) for row in rows if isinstance(row, list)]

    def total(self) -> int:
        """How many tasks the store has."""
        status: JsonObject = json.loads(str(self.call(MANAGER_PATH, MANAGER, "GetStatus")[0]))
        counts = status["tasks"]
        assert isinstance(counts, dict)
        return int(str(counts["total"]))


def field_of(value: JsonValue, *keys: str) -> JsonValue:
    """A value deep in a JSON object; fails with the whole object when it is not there."""
    inner = value
    for key in keys:
        assert isinstance(inner, dict) and key in inner, f"no {'.'.join(keys)} in {value}"
        inner = inner[key]
    return inner


@contextlib.contextmanager
def connected(
    box: Container, user: str, *, login: bool = False, seat: str | None = None, module: Sequence[str] = ()
) -> Iterator[Caller]:
    """A connection as `user`; for the kinds of session see `tests.rig.commands.argv_inside`."""
    argv = ("env", "PYTHONPATH=/src", "PYTHONDONTWRITEBYTECODE=1", "python3", "-m", "tests.system.client", *module)
    with box.popen(*argv, user=user, login=login, seat=seat, stdin=subprocess.PIPE) as client:
        caller = Caller(box, user, client)
        listener = threading.Thread(target=caller.listen, name=f"client of {user}")
        listener.start()
        try:
            while not caller.name:
                caller.take(time.monotonic() + ANSWER_TIMEOUT)
            yield caller
        finally:
            assert client.stdin is not None
            client.stdin.close()  # it ends by itself
            listener.join()
            client.wait()
