"""A D-Bus method of ours as an operation: what its arguments become, and what the answer becomes. See `members`."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from aiosd.bus.values import Option, read_options, text_argument, text_of
from aiosd.model.jsontext import dump
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue

    Encoder: TypeAlias = Callable[[JsonObject], tuple[BusValue, ...]]
    Decoder: TypeAlias = Callable[[str, BusValue], JsonValue]

OPTIONS = "options"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument before `options`: the parameter that it fills, how, and whether "" means "not given"."""

    param: str
    decode: Decoder
    omit_empty: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A method of ours. `fixed`: parameters that this door always sets."""

    interface: str
    name: str
    operation: str
    encode: Encoder
    arguments: tuple[Argument, ...] = ()
    options: Mapping[str, Option] | None = None
    fixed: Mapping[str, JsonValue] = field(default_factory=dict)

    def params(self, body: tuple[BusValue, ...], named: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The operation's parameters. `body` has the signature of the XML; `named`: those that the object's path is."""
        params: dict[str, JsonValue] = dict(named)
        for key, preset in self.fixed.items():
            params[key] = dict(preset) if isinstance(preset, dict) else preset
        for argument, value in zip(self.arguments, body, strict=False):
            decoded = argument.decode(argument.param, value)
            if decoded != "" or not argument.omit_empty:
                params[argument.param] = decoded
        if self.options is not None:
            read_options(self.options, body[-1], params)
        return params

    def argument_named(self, parameter: str) -> str:
        """What a caller of this method calls an operation's parameter: `options.retry.max_attempts` of the operation is
        `options.retry_max_attempts` here."""
        for name, option in (self.options or {}).items():
            place = ".".join(option.place)
            rest = parameter.removeprefix(place)
            if parameter.startswith(place) and (rest == "" or rest[0] in ".["):
                return f"{OPTIONS}.{name}{rest}"
        return parameter


def nothing(body: JsonObject) -> tuple[BusValue, ...]:
    """No values."""
    del body
    return ()


def whole(body: JsonObject) -> tuple[BusValue, ...]:
    """All of the answer as one JSON text."""
    return (dump(body),)


def text(key: str) -> Encoder:
    """The one string at `key`."""
    return lambda body: (text_of(body, key),)


TASK_ID = Argument("task_id", text_argument)
SESSION_ID = Argument("session_id", text_argument)
