"""A figure: the samples of several rounds, its floor's, and how both are shown."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Spread:
    """Several measurements of one thing."""

    samples: tuple[float, ...]

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """At least one sample."""
        if not samples:
            raise ValueError("nothing was measured")
        return cls(tuple(samples))

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def __str__(self) -> str:
        """Median, and the range when there is one."""
        if len(self.samples) == 1:
            return _short(self.median)
        return f"{_short(self.median)} ({_short(min(self.samples))}-{_short(max(self.samples))})"


@dataclass(frozen=True)
class Figure:
    """One row. `goal`: what issue or design asks for; `floor`: the same without us. `ratio_goal` bounds the ratio."""

    name: str
    unit: str
    measured: Spread
    floor: Spread | None = None
    goal: str = ""

    @property
    def ratio(self) -> float | None:
        """To the floor, of the medians."""
        return None if self.floor is None else self.measured.median / self.floor.median

    def cells(self) -> tuple[str, str, str, str, str]:
        """Name, value, floor, ratio, goal."""
        ratio = self.ratio
        return (
            self.name,
            f"{self.measured} {self.unit}",
            "" if self.floor is None else f"{self.floor} {self.unit}",
            "" if ratio is None else f"{ratio:.2f}",
            self.goal,
        )


HEAD = ("what", "measured", "floor", "ratio", "goal")


def _short(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def as_text(figures: Sequence[Figure]) -> str:
    """A table for a terminal."""
    rows = [HEAD, *(figure.cells() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_markdown(figures: Sequence[Figure]) -> str:
    """The same for a document."""
    rows = [HEAD, tuple("---" for _ in HEAD), *(figure.cells() for figure in figures)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
