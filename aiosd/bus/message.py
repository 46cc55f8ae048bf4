"""What goes over the bus, in our own types: calls, answers, signals, errors. Knows no D-Bus library.

Import these from `aiosd.bus.connection`, together with the connection that takes and gives them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiosd.bus.connection import Variant

    BusValue: TypeAlias = "str | int | float | bool | bytes | Sequence[BusValue] | Mapping[str, BusValue] | Variant"
    """A value in a message body; a struct is a list or a tuple, a variant a `Variant(signature, value)`."""

CALL_TIMEOUT = 25.0
"""Seconds that a call waits for its answer when not told otherwise (libdbus's default)."""

_LIMITS_EXCEEDED = "org.freedesktop.DBus.Error.LimitsExceeded"
_BAD_ANSWER = "org.freedesktop.DBus.Error.InvalidSignature"


class BusCallError(Exception):
    """A call that failed. `name`: the D-Bus error name; `message`: its text; `body`: everything that came with it."""

    def __init__(self, name: str, message: str, body: tuple[BusValue, ...] = ()) -> None:
        """`body` starts with the text when the error came over the bus."""
        super().__init__(f"{name}: {message}" if message else name)
        self.name = name
        self.message = message
        self.body = body


class MessageTooLargeError(BusCallError):
    """A message that the bus would not take: it would end the connection instead. `size` in bytes."""

    def __init__(self, size: int) -> None:
        """`size`: of the message."""
        super().__init__(_LIMITS_EXCEEDED, f"a message of {size} bytes is too large for the bus")
        self.size = size


@dataclass(frozen=True, slots=True)
class Call:
    """A method call to make. `timeout` in seconds (None: wait for ever); `fds` stay the caller's to close."""

    destination: str
    path: str
    interface: str | None
    member: str
    signature: str = ""
    body: tuple[BusValue, ...] = ()
    fds: tuple[int, ...] = ()
    timeout: float | None = CALL_TIMEOUT
    allow_interactive: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `fds` are the receiver's to close; an `h` in the body is an index into them."""

    signature: str
    body: tuple[BusValue, ...]
    fds: tuple[int, ...] = ()

    def text(self, index: int = 0) -> str:
        """The string at `index`. Raises BusCallError when there is none, as a peer may answer anything."""
        value = self.body[index] if index < len(self.body) else None
        if not isinstance(value, str):
            raise BusCallError(_BAD_ANSWER, f"expected a string, got signature {self.signature!r}")
        return value

    def number(self, index: int = 0) -> int:
        """The integer at `index`. Raises BusCallError when there is none."""
        value = self.body[index] if index < len(self.body) else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise BusCallError(_BAD_ANSWER, f"expected a number, got signature {self.signature!r}")
        return value


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that a match rule brought here. `sender` is a unique name (or org.freedesktop.DBus), set by the bus."""

    sender: str
    path: str
    interface: str
    member: str
    signature: str
    body: tuple[BusValue, ...]


@dataclass(slots=True)
class MethodCall:
    """A call from somebody. `sender` is set by the bus and cannot be forged; `interface` None when left out.

    Its descriptors are closed when the handler returns, unless it took them.
    """

    sender: str
    path: str
    interface: str | None
    member: str
    signature: str
    body: tuple[BusValue, ...]
    serial: int
    expects_reply: bool
    interactive: bool
    _fds: list[int] = field(default_factory=list)

    @property
    def fd_count(self) -> int:
        """Descriptors that came with it and were not taken."""
        return len(self._fds)

    def take_fds(self) -> tuple[int, ...]:
        """The received descriptors, from now on the taker's to close."""
        taken = tuple(self._fds)
        self._fds.clear()
        return taken


def plain(text: str) -> str:
    """`text` as D-Bus can carry it: NUL and lone surrogates (either would end the connection) become U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")
