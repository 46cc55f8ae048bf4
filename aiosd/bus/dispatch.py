"""The one dispatcher of method calls: what is called, by whom, with what; then the core, then the answer.

Nothing is exported: a path is read (paths.py), the interface looked up (interfaces.py), and a task found by asking the
core for it as the caller, so that a task which they may not see is answered exactly like one that does not exist. What
needs no identity (ping, introspection of fixed paths, mistakes in the call) is answered at once; the rest runs as one
bounded piece of work of its sender (peers.py).
"""

from __future__ import annotations

import logging
import os
from contextlib import closing
from typing import TYPE_CHECKING, Protocol, TypeAlias

from aiosd.auth.caller import BusSubject, Caller
from aiosd.bus.connection import BusCallError, MessageTooLargeError
from aiosd.bus.descriptors import Received
from aiosd.bus.interfaces import INTROSPECTABLE, PEER, STANDARD, introspection
from aiosd.bus.members import MEMBERS
from aiosd.bus.objects import read, read_all
from aiosd.bus.paths import Place, Target, find
from aiosd.bus.turns import Turns
from aiosd.bus.values import MAX_STRING, rows_of
from aiosd.core.operations import APPROVAL, MANAGER, OPERATIONS, SESSION, TASK, WORKER
from aiosd.errors import AiosError, ErrorKind, too_large
from aiosd.model.ids import event_sequence
from aiosd.model.jsontext import dump
from aiosd.model.later import dataclass
from aiosd.model.subscription import granted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiosd.bus.connection import MethodCall, SystemBus
    from aiosd.bus.interfaces import Interface, Method
    from aiosd.bus.member import Member
    from aiosd.bus.message import BusValue
    from aiosd.bus.peers import Peer, Peers
    from aiosd.bus.subscriptions import Subscriptions
    from aiosd.core.operations import Reply
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.secrettext import SecretText

    Work: TypeAlias = Callable[[MethodCall, Caller], Awaitable["Outcome"]]

STANDARD_ERROR = "org.freedesktop.DBus.Error."
_GONE = frozenset({f"{STANDARD_ERROR}NameHasNoOwner", f"{STANDARD_ERROR}Disconnected"})
_HIDDEN = frozenset(
    {
        ErrorKind.TASK_NOT_FOUND,
        ErrorKind.SESSION_NOT_FOUND,
        ErrorKind.APPROVAL_NOT_FOUND,
        ErrorKind.WORKER_NOT_FOUND,
        ErrorKind.PERMISSION_DENIED,
        ErrorKind.INTERACTIVE_AUTH_REQUIRED,
    }
)
_INTERFACES = {
    Place.MANAGER: MANAGER,
    Place.TASK: TASK,
    Place.SESSION: SESSION,
    Place.APPROVAL: APPROVAL,
    Place.WORKER: WORKER,
}
_FOUND_BY_ASKING = {
    Place.TASK: "task.get",
    Place.SESSION: "session.get",
    Place.APPROVAL: "approval.get",
    Place.WORKER: "worker.get",
}
"""Objects of which only the core knows whether they are there for a caller, and the operation that tells."""

MAX_MISSED_BYTES = 8 * 1024 * 1024
"""Most JSON that Resubscribe answers; a message on the system bus may have 32 MiB."""

_log = logging.getLogger(__name__)


class Core(Protocol):
    """What answers operations (core/manager.py)."""

    async def invoke(self, name: str, caller: Caller, params: JsonObject, secret: SecretText | None = None) -> Reply:
        """Do it as `caller`; `secret` is wiped. Raises AiosError."""
        ...


class StandardError(Exception):
    """A refusal in the words of the D-Bus specification; `name` without its prefix."""

    def __init__(self, name: str, message: str) -> None:
        """`message`: one sentence for people."""
        super().__init__(message)
        self.name = STANDARD_ERROR + name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What goes back. `fds` are closed once sent; `afterwards` follows the reply without a pause."""

    signature: str = ""
    body: tuple[BusValue, ...] = ()
    fds: tuple[int, ...] = ()
    afterwards: Callable[[], None] | None = None


class Dispatcher:
    """Answers every method call that arrives on the connection."""

    def __init__(
        self,
        bus: SystemBus,
        core: Core,
        peers: Peers,
        subscriptions: Subscriptions,
        interfaces: Mapping[str, Interface],
        machine_id: str,
    ) -> None:
        """`interfaces`: ours, of dbus/*.xml; `machine_id`: for Peer.GetMachineId."""
        self._bus = bus
        self._core = core
        self._peers = peers
        self._subscriptions = subscriptions
        self._interfaces = interfaces
        self._machine_id = machine_id
        self._turns = Turns(bus)

    def handle(self, call: MethodCall) -> None:
        """Answer, or start what will (a `SystemBus.serve` handler)."""
        try:
            found = self._resolve(call)
            if isinstance(found, Outcome):
                self._reply(call, found)
            else:
                self._peers.run(call.sender, lambda peer: self._serve(call, peer, found))
        except (AiosError, StandardError) as error:
            self._refuse(call, error)

    async def _serve(self, call: MethodCall, peer: Peer, work: Work) -> None:
        """One call to its end. Every failure but the caller's leaving is answered."""
        try:
            uid = await self._peers.uid(peer)
            with self._peers.shares.call(uid):
                outcome = await work(call, Caller(uid, BusSubject(call.sender), interactive=call.interactive))
                with closing(_Descriptors(outcome.fds)):
                    await self._turns.wait(uid, outcome)
                    self._reply(call, outcome)
        except (AiosError, StandardError) as error:
            self._refuse(call, error)
        except Exception as error:  # noqa: BLE001 - the caller gets an answer, the journal the traceback
            if isinstance(error, BusCallError) and error.name in _GONE:
                return
            _log.exception("%s.%s failed unexpectedly", call.interface, call.member)
            self._refuse(call, AiosError(ErrorKind.INTERNAL))

    def _reply(self, call: MethodCall, outcome: Outcome) -> None:
        try:
            self._bus.send_reply(call, outcome.signature, outcome.body, outcome.fds)
        except MessageTooLargeError as error:
            raise too_large(error.size) from None
        if outcome.afterwards is not None:
            outcome.afterwards()

    def _refuse(self, call: MethodCall, error: AiosError | StandardError) -> None:
        if isinstance(error, StandardError):
            self._bus.send_error(call, error.name, str(error))
        else:
            self._bus.send_error(call, error.kind.dbus_name, error.text, dump(error.data()))

    def _resolve(self, call: MethodCall) -> Outcome | Work:
        """What the call means, or its answer. Raises StandardError for what no object of ours has."""
        target = find(call.path)
        if target is None:
            raise StandardError("UnknownObject", "there is no such object")
        own = self._own(target)
        interface, method = _method(call, own)
        if call.signature != method.takes:
            raise StandardError("InvalidArgs", f"{method.name} takes {method.takes!r}, not {call.signature[:64]!r}")
        if interface.name == PEER:
            return Outcome() if method.name == "Ping" else Outcome("s", (self._machine_id,))
        if interface.name == INTROSPECTABLE:
            answer = Outcome("s", (introspection(own, target.child),))
            return self._when_visible(target, answer) if target.place in _FOUND_BY_ASKING else answer
        if own is not None and interface is own:
            return self._operation(call, target, method)
        return self._properties(call, target, own, method.name)

    def _own(self, target: Target) -> Interface | None:
        name = _INTERFACES.get(target.place)
        return None if name is None else self._interfaces[name]

    def _operation(self, call: MethodCall, target: Target, method: Method) -> Work:
        """A method of ours."""
        member = MEMBERS[_INTERFACES[target.place], method.name]
        special = {
            "task.subscribe": self._subscribe,
            "task.resubscribe": self._subscribe,
            "feed.subscribe": self._subscribe,
            "task.unsubscribe": self._unsubscribe,
        }.get(member.operation, self._invoke)

        if OPERATIONS[member.operation].secret is not None:
            return self._secret_operation(member, method, target, Received(call.take_fds()))

        async def work(call: MethodCall, caller: Caller) -> Outcome:
            return await special(member, method, caller, call.sender, member.params(call.body, target.params))

        return work

    def _secret_operation(self, member: Member, method: Method, target: Target, received: Received) -> Work:
        """A method whose secret comes by descriptor."""
        name = OPERATIONS[member.operation].secret or ""

        async def work(call: MethodCall, caller: Caller) -> Outcome:
            with received:
                params = member.params(call.body, target.params)
                if name not in params:
                    return await self._invoke(member, method, caller, call.sender, params)
                field = member.argument_named(name)
                with await received.secret(field, int(str(params.pop(name)))) as secret:
                    reply = await self._ask(member, caller, params, secret)
                    return Outcome(method.gives, member.encode(reply.body))

        return work

    async def _ask(self, member: Member, caller: Caller, params: JsonObject, secret: SecretText | None = None) -> Reply:
        """The core's answer; a refusal names the arguments as this door does."""
        try:
            if secret is not None:
                return await self._core.invoke(member.operation, caller, params, secret)
            return await self._core.invoke(member.operation, caller, params)
        except AiosError as error:
            if error.field is not None:
                error.field = member.argument_named(error.field)
            raise

    async def _invoke(self, member: Member, method: Method, caller: Caller, sender: str, params: JsonObject) -> Outcome:
        del sender
        reply = await self._ask(member, caller, params)
        try:
            return Outcome(method.gives, member.encode(reply.body), reply.fds)
        except BaseException:
            _Descriptors(reply.fds).close()
            raise

    async def _subscribe(
        self, member: Member, method: Method, caller: Caller, sender: str, params: JsonObject
    ) -> Outcome:
        """The core decides and names the scope; this door keeps the subscription and loses nothing meanwhile."""
        self._subscriptions.check_room(sender)
        with self._subscriptions.recording() as recording:
            body = await self._granted(member, caller, params)
        if recording.overflowed and "missed_events" in body:
            raise AiosError(ErrorKind.BUSY, "too much happened meanwhile; ask again")
        named = body.get("last_event_id")
        after = event_sequence(named) if isinstance(named, str) else None
        subscription, recorded = granted(body, after=after or 0), tuple(recording.events)
        self._subscriptions.check_room(sender)
        self._subscriptions.check_followers(caller.uid, subscription)

        def start() -> None:
            self._subscriptions.start(sender, caller.uid, subscription, recorded)

        return Outcome(method.gives, member.encode(body), afterwards=start)

    async def _granted(self, member: Member, caller: Caller, params: JsonObject) -> JsonObject:
        """The core's answer, with all that was missed: it tells that in pages."""
        body = (await self._ask(member, caller, params)).body
        missed = rows_of(body, "missed_events")
        size = len(dump(list(missed)))
        while body.get("more") is True:
            if size > MAX_MISSED_BYTES:
                raise AiosError(ErrorKind.BUSY, "too much was missed for one answer", field="last_event_id")
            body = (await self._ask(member, caller, {**params, "last_event_id": body["last_event_id"]})).body
            page = rows_of(body, "missed_events")
            size += len(dump(list(page)))
            missed += page
        return {**body, "missed_events": list(missed)} if "missed_events" in body else body

    async def _unsubscribe(
        self, member: Member, method: Method, caller: Caller, sender: str, params: JsonObject
    ) -> Outcome:
        """Only of this connection: another one's subscription is not there for it."""
        identifier = str(params["subscription_id"])
        if not self._subscriptions.owns(sender, identifier):
            raise AiosError(ErrorKind.SUBSCRIPTION_NOT_FOUND, "this connection has none of that id")
        self._subscriptions.end(identifier)
        return await self._invoke(member, method, caller, sender, params)

    def _when_visible(self, target: Target, answer: Outcome) -> Work:
        async def work(call: MethodCall, caller: Caller) -> Outcome:
            del call
            await self._body(target, caller)
            return answer

        return work

    async def _body(self, target: Target, caller: Caller) -> JsonObject:
        """What the object's properties are made from. Raises StandardError when the caller may not see it."""
        try:
            operation = _FOUND_BY_ASKING.get(target.place, "service.status")
            return (await self._core.invoke(operation, caller, target.params)).body
        except AiosError as error:
            if target.place in _FOUND_BY_ASKING and error.kind in _HIDDEN:
                raise StandardError("UnknownObject", "there is no such object") from None
            raise

    def _properties(self, call: MethodCall, target: Target, own: Interface | None, method: str) -> Outcome | Work:
        """org.freedesktop.DBus.Properties of any object."""
        name = str(call.body[0])
        if name in STANDARD or (name == "" and own is None):
            own = None
        elif own is None or name not in ("", own.name):
            raise StandardError("UnknownInterface", "the object does not have that interface")
        if method == "GetAll":
            if own is None:
                return Outcome("a{sv}", ({},))
        else:
            known = own is not None and str(call.body[1])[:MAX_STRING] in own.properties
            if not known:
                raise StandardError("UnknownProperty", "the interface has no such property")
            if method == "Set":
                raise StandardError("PropertyReadOnly", "the property cannot be set")
        return self._read(target, own, None if method == "GetAll" else str(call.body[1]))

    def _read(self, target: Target, own: Interface | None, name: str | None) -> Work:
        assert own is not None  # noqa: S101 - `_properties` has seen to it; for the type checker

        async def work(call: MethodCall, caller: Caller) -> Outcome:
            del call
            body = await self._body(target, caller)
            return Outcome("a{sv}", (read_all(own, body),)) if name is None else Outcome("v", (read(own, name, body),))

        return work


def _method(call: MethodCall, own: Interface | None) -> tuple[Interface, Method]:
    """The method called; without an interface in the call, the first that has one of the name."""
    present = [*STANDARD.values(), *([] if own is None else [own])]
    if call.interface is not None:
        present = [one for one in present if one.name == call.interface]
        if not present:
            raise StandardError("UnknownInterface", "the object does not have that interface")
    for interface in present:
        method = interface.methods.get(call.member)
        if method is not None:
            return interface, method
    raise StandardError("UnknownMethod", "the interface does not have that method")


class _Descriptors:
    """Descriptors to close."""

    def __init__(self, fds: tuple[int, ...]) -> None:
        self._fds = fds

    def close(self) -> None:
        for descriptor in self._fds:
            os.close(descriptor)
