"""`dataclass`, whose methods are made when the first of them is needed. Otherwise as the standard library's.

    from aiosd.model.later import dataclass

A third of the time that the daemon's import took was the making of methods for its dataclasses: for each they are
written as text and compiled, for some two hundred classes of which a start needs a quarter. Here a class has its slots
at once, as it must, and stand-ins for the rest. When the first of these is asked for, the standard library makes all of
them, and they replace the stand-ins; from then on nothing differs. (Without `slots` nothing differs at all.)

Not there, because nobody here needs it: `weakref_slot`, and pickling and copying of frozen instances.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, slots=False, **options):
        """As `dataclasses.dataclass`."""
        if not slots:
            return dataclasses.dataclass(cls, **options)
        return _later(cls, options) if cls is not None else lambda given: _later(given, options)


_MADE = (
    "__init__", "__repr__", "__eq__", "__match_args__", "__replace__", "__dataclass_fields__", "__dataclass_params__",
)  # fmt: skip
_OF_FROZEN = ("__setattr__", "__delattr__", "__hash__")
_OF_ORDERED = ("__lt__", "__le__", "__gt__", "__ge__")
_OF_PLAIN = frozenset({"__dict__", "__weakref__"})

_making = threading.RLock()
"""Threads of the store make instances, too."""


class _StandIn:
    """Stands for one of the methods of a class, or for what the standard library knows of it."""

    __slots__ = ("_name", "_pending")

    def __init__(self, name: str, pending: _Pending) -> None:
        self._name = name
        self._pending = pending

    def __get__(self, instance: object, owner: type) -> object:
        """Have all of them made; then the one that was asked for is there."""
        self._pending.make()
        return getattr(owner if instance is None else instance, self._name)


class _Pending:
    """A class whose methods are not there yet. `plain`: as it was written; `made`: the same with slots."""

    __slots__ = ("_before", "_made", "_options", "_plain")

    def __init__(self, plain: type, made: type, options: dict[str, bool]) -> None:
        self._plain: type | None = plain
        self._made = made
        self._options = options
        self._before = vars(plain).keys() | _OF_PLAIN
        names = [*_MADE]
        if options.get("frozen"):
            names += _OF_FROZEN
        if options.get("order"):
            names += _OF_ORDERED
        for name in names:
            if name not in self._before:
                setattr(made, name, _StandIn(name, self))

    def make(self) -> None:
        """Once; whoever comes meanwhile waits."""
        with _making:
            if self._plain is None:
                return
            made, filled = self._made, vars(dataclasses.dataclass(**self._options)(self._plain))
            for name in filled.keys() - self._before:
                type.__setattr__(made, name, filled[name])
            for name, value in tuple(vars(made).items()):
                if isinstance(value, _StandIn):  # a method that the options leave out
                    type.__delattr__(made, name)
            self._plain = None


def _later(plain: type, options: dict[str, bool]) -> type:
    """The class with its slots and stand-ins."""
    names = [name for name, kind in plain.__annotations__.items() if not str(kind).startswith("ClassVar")]
    inherited = {slot for base in plain.__mro__[1:] for slot in vars(base).get("__slots__", ())}
    given = {name: value for name, value in vars(plain).items() if name not in _OF_PLAIN and name not in names}
    given["__slots__"] = tuple(name for name in names if name not in inherited)
    if options.get("eq", True) and not options.get("frozen"):
        given.setdefault("__hash__", None)  # as of all that can be changed
    made = type(plain)(plain.__name__, plain.__bases__, given)
    made.__qualname__ = plain.__qualname__
    _Pending(plain, made, options)
    return made
