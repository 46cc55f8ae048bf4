"""Columns of text for people, as systemctl shows them: a head, aligned cells, the last column cut to the terminal."""

from __future__ import annotations

import shutil
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiosd.cli.session import Style
from aiosd.cli.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.cli.session import Session


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and how it looks."""

    text: str
    style: Style | None = None


def width(text: str) -> int:
    """Columns that a text takes on a terminal (Unicode Standard Annex 11; marks take none)."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def cut(text: str, columns: int) -> str:
    """`text` in at most `columns` columns, an ellipsis where it was cut."""
    if width(text) <= columns:
        return text
    kept, used = [], 1
    for char in text:
        used += width(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept) + "…"


def render(session: Session, head: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> list[str]:
    """The lines of a table. Everything is cleaned; only a terminal's own width cuts."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    widths = [max([width(name), *(width(row[index].text) for row in cells)]) for index, name in enumerate(head)]
    limit = shutil.get_terminal_size().columns if session.out_is_terminal else None
    lines = [_line(session, [Cell(name, Style.HEAD) for name in head], widths, limit)]
    return [*lines, *(_line(session, row, widths, limit) for row in cells)]


def _cell(cell: str | Cell) -> Cell:
    return Cell(one_line(cell.text) or "-", cell.style) if isinstance(cell, Cell) else Cell(one_line(cell) or "-")


def _line(session: Session, row: Sequence[Cell], widths: Sequence[int], limit: int | None) -> str:
    parts, used = [], 0
    for index, (cell, column) in enumerate(zip(row, widths, strict=True)):
        text = cell.text if limit is None else cut(cell.text, max(limit - used, 1))
        last = index == len(row) - 1
        parts.append(session.paint(text, cell.style) + ("" if last else " " * (column - width(text) + 2)))
        used += column + 2
        if limit is not None and used >= limit:
            break
    return "".join(parts).rstrip(" ")
