"""`aiosd.model.later` against the standard library's `dataclass`: the same, only not at once."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import aiosd
from aiosd.model import later

if TYPE_CHECKING:
    from collections.abc import Callable


def _classes(dataclass: Any) -> dict[str, Any]:
    """Classes of each kind that the program has."""

    @dataclass(frozen=True, slots=True)
    class Frozen:
        """Cannot be changed."""

        first: int
        second: str = "two"
        third: list[int] = dataclasses.field(default_factory=list, compare=False)
        common: ClassVar[int] = 7

        @property
        def doubled(self) -> int:
            """Of its own."""
            return 2 * self.first

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Further(Frozen):
        """With more."""

        fourth: float = 4.0

        def __post_init__(self) -> None:
            if self.fourth < 0:
                raise ValueError("less than nothing")

    @dataclass(slots=True)
    class Open:
        """Can be changed."""

        first: int = 1

        def __repr__(self) -> str:
            return "its own"

    @dataclass(slots=True, eq=False)
    class Single:
        """Only equal to itself."""

        first: int = 1

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        """Has an order."""

        first: int

    return {one.__name__: one for one in (Frozen, Further, Open, Single, Ordered)}


def _behaviour(made: dict[str, Any]) -> list[object]:
    frozen, further, open_, single, ordered = made.values()
    one, other = frozen(1), further(1, fourth=2.5)
    found: list[object] = [
        frozen.__match_args__, further.__match_args__, frozen.__slots__, further.__slots__, frozen.common,
        [(field.name, field.kw_only) for field in dataclasses.fields(further)], frozen.__doc__, further.__qualname__,
        repr(one).rpartition(".")[2], repr(other).rpartition(".")[2], one == frozen(1, third=[9]), one == frozen(2),
        one == other, hash(one) == hash(frozen(1)), one.doubled, dataclasses.asdict(other),
        dataclasses.replace(one, second="x").second, repr(open_()), open_(2) == open_(2), open_.__hash__ is None,
        single() == single(), len({single(), single()}), ordered(1) < ordered(2),
    ]  # fmt: skip
    match other:
        case further(first, second):
            found += [first, second]
    changed = open_(1)
    changed.first = 5
    found.append(changed.first)
    for wrong in (
        lambda: setattr(one, "first", 2), lambda: delattr(one, "first"), frozen, lambda: further(1, "a", [], 4.0),
        lambda: further(1, fourth=-1.0), lambda: setattr(open_(), "other", 1), lambda: hash(open_()),
    ):  # fmt: skip
        with pytest.raises(Exception) as caught:
            wrong()
        found.append((type(caught.value), str(caught.value).rpartition(".")[2]))
    return found


def test_it_behaves_as_the_standard_librarys() -> None:
    assert _behaviour(_classes(later.dataclass)) == _behaviour(_classes(dataclasses.dataclass))


@pytest.mark.parametrize(
    "use",
    [
        lambda made: made(1), lambda made: made.__match_args__, dataclasses.fields, dataclasses.is_dataclass,
    ],
)  # fmt: skip
def test_nothing_is_made_before_it_is_needed(use: Callable[[type], object], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = dataclasses.dataclass

    def counted(**options: bool) -> Callable[[type], type]:
        def apply(plain: type) -> type:
            made.append(plain.__name__)
            return real(**options)(plain)

        return apply

    monkeypatch.setattr("aiosd.model.later.dataclasses.dataclass", counted)
    classes = _classes(later.dataclass)
    assert made == []
    use(classes["Frozen"])
    use(classes["Frozen"])
    assert made == ["Frozen"]


def test_threads_that_come_together_find_it_made() -> None:
    for _ in range(20):
        made = _classes(later.dataclass)["Further"]
        begin = threading.Barrier(4)
        found: list[object] = []

        def use(begin: threading.Barrier = begin, found: list[object] = found, made: type = made) -> None:
            begin.wait()
            found.append(made(3, fourth=1.5))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [made(3, fourth=1.5)] * 4


def test_every_class_of_the_program_can_be_made() -> None:
    """A mistake in a class would otherwise show with its first instance only."""
    for module in pkgutil.walk_packages(aiosd.__path__, "aiosd."):
        if not module.name.endswith("__main__"):
            for one in vars(importlib.import_module(module.name)).values():
                if isinstance(one, type) and one.__module__ == module.name:
                    assert not dataclasses.is_dataclass(one) or dataclasses.fields(one) is not None
                    assert not [name for name, value in vars(one).items() if isinstance(value, later._StandIn)]
