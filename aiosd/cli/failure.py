"""How a verb gives up: one sentence that says what is wrong, and a hint that says what to do about it.

`main` turns a `Failure` into text on stderr or, with --json, into an object on stdout; nothing expected ends in a
traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from aiosd.cli.exit_status import ExitStatus
from aiosd.errors import ErrorKind, by_dbus_name

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue


class Failure(Exception):
    """An expected end of a verb. `kind` is the daemon's row of the error table when it was the daemon that refused."""

    def __init__(
        self, what: str, *, hint: str = "", status: int, error_id: str, kind: ErrorKind | None = None,
        data: JsonObject | None = None,
    ) -> None:  # fmt: skip
        """`what`: a sentence without a full stop. `status`: the exit status. `error_id`: stable, for programs. `data`:
        what the daemon said beside it: the field at fault, the reason."""
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.status = status
        self.error_id = error_id
        self.kind = kind
        self.data: JsonObject = data or {}

    @property
    def is_absence(self) -> bool:
        """Whether the daemon is away, perhaps to come back."""
        return self.status == ExitStatus.UNAVAILABLE or self.kind is ErrorKind.SHUTTING_DOWN

    def wire(self) -> dict[str, JsonValue]:
        """The error object of --json: JSON-RPC's shape; `code` only where the daemon's table has one."""
        data: dict[str, JsonValue] = {**self.data, "error_id": self.error_id, "exit_status": self.status}
        if self.hint:
            data["hint"] = self.hint
        code: dict[str, JsonValue] = {} if self.kind is None else {"code": self.kind.value.code}
        return {**code, "message": self.what, "data": data}


_OWN_IDS = {
    ExitStatus.USAGE: "AIOSCTL-USAGE",
    ExitStatus.DATA: "AIOSCTL-DATA",
    ExitStatus.NOT_FOUND: "AIOSCTL-NOT-FOUND",
    ExitStatus.UNAVAILABLE: "AIOSCTL-UNAVAILABLE",
    ExitStatus.CANNOT_CREATE: "AIOSCTL-CANNOT-CREATE",
    ExitStatus.IO: "AIOSCTL-IO",
    ExitStatus.TRY_AGAIN: "AIOSCTL-TRY-AGAIN",
    ExitStatus.PROTOCOL: "AIOSCTL-PROTOCOL",
    ExitStatus.DENIED: "AIOSCTL-DENIED",
}


def die(what: str, *, hint: str = "", status: ExitStatus = ExitStatus.FAILURE) -> NoReturn:
    """Give up for a reason of aiosctl's own."""
    raise Failure(what, hint=hint, status=status, error_id=_OWN_IDS.get(status, "AIOSCTL-FAILURE"))


_HINTS = {
    ErrorKind.CAPABILITY_NOT_FOUND: "'aiosctl capability list' shows what is installed",
    ErrorKind.TASK_NOT_FOUND: "'aiosctl list' shows your tasks",
    ErrorKind.INTERACTIVE_AUTH_REQUIRED: "run it on a terminal, without --no-ask-password",
    ErrorKind.QUEUE_FULL: "try again later, or cancel queued tasks",
    ErrorKind.INPUT_REQUIRED: "answer it with 'aiosctl answer ID key=value'",
    ErrorKind.AUTH_REQUIRED: "authenticate for it with 'aiosctl auth ID'",
    ErrorKind.SHUTTING_DOWN: "try again in a moment",
}

START_HINT = "'systemctl status aiosd.service' tells why; 'systemctl start aiosd.service' starts it"

_BUS_ERRORS = {
    "org.freedesktop.DBus.Error.ServiceUnknown": ("aiosd is not running", ExitStatus.UNAVAILABLE, START_HINT),
    "org.freedesktop.DBus.Error.NameHasNoOwner": ("aiosd is not running", ExitStatus.UNAVAILABLE, START_HINT),
    "org.freedesktop.DBus.Error.NoReply": ("aiosd did not answer", ExitStatus.UNAVAILABLE, START_HINT),
    "org.freedesktop.DBus.Error.Timeout": ("aiosd did not answer in time", ExitStatus.UNAVAILABLE, START_HINT),
    "org.freedesktop.DBus.Error.TimedOut": ("aiosd did not start in time", ExitStatus.UNAVAILABLE, START_HINT),
    "org.freedesktop.DBus.Error.Disconnected": ("The system bus closed the connection", ExitStatus.UNAVAILABLE, ""),
    "org.freedesktop.DBus.Error.AccessDenied": ("The bus does not allow this call", ExitStatus.DENIED, ""),
    "org.freedesktop.DBus.Error.UnknownMethod": (
        "This aiosd does not know the call",
        ExitStatus.PROTOCOL,
        "aiosctl and aiosd are of different versions: restart aiosd.service",
    ),
}


def of_rpc(error_id: str, message: str, data: JsonObject | None = None) -> Failure:
    """The failure for the error of a JSON-RPC answer. `data`: the error's."""
    kind = next((kind for kind in ErrorKind if kind.value.error_id == error_id), None)
    status = ExitStatus.FAILURE if kind is None else kind.value.exit_status
    hint = "" if kind is None else _HINTS.get(kind, "")
    return Failure(message, hint=hint, status=status, error_id=error_id, kind=kind, data=data)


def of_dbus(name: str, message: str, data: JsonObject | None = None) -> Failure:
    """The failure for a D-Bus error reply, whether the daemon's own or the bus's. `data`: JSON-RPC's `error.data`,
    which the daemon sends as a second argument."""
    kind = by_dbus_name(name)
    if kind is not None:
        return Failure(
            message or kind.value.message,
            hint=_HINTS.get(kind, ""),
            status=kind.value.exit_status,
            error_id=kind.value.error_id,
            kind=kind,
            data=data,
        )
    text, status, hint = _BUS_ERRORS.get(name, ("", ExitStatus.FAILURE, ""))
    if not text and name.startswith("org.freedesktop.DBus.Error.Spawn."):
        text, status, hint = "aiosd could not be started", ExitStatus.UNAVAILABLE, START_HINT
    detail = f"{text}: {message}" if text and message else text or message or name
    return Failure(detail, hint=hint, status=status, error_id=_OWN_IDS.get(status, name))
