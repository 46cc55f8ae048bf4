"""What came of a fault that a test made, as a row of a table in docs/reliability.md.

Every run prints its rows; with `AIOSD_WRITE_DOCS=1` each is also written into the page, in place of the row with the
same first cell, or at the end of its table. So the page says what was seen, and the test that saw it.
"""

from __future__ import annotations

import os

from tests.rig import host

PAGE = host.CHECKOUT / "docs/reliability.md"


def begin(table: str) -> str:
    """The line before a table's head."""
    return f"<!-- made by running: {table} -->"


END = "<!-- end -->"


def note(table: str, *cells: object) -> None:
    """One row; the first cell names it."""
    row = "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
    print(row)
    if os.environ.get("AIOSD_WRITE_DOCS"):
        PAGE.write_text(with_row(PAGE.read_text("utf-8"), table, row), encoding="utf-8")


def with_row(page: str, table: str, row: str) -> str:
    """The page with that row in that table. Raises LookupError when there is no such table."""
    before, found, rest = page.partition(begin(table) + "\n")
    inside, ended, after = rest.partition(END)
    if not (found and ended):
        raise LookupError(table)
    name = row.split(" | ")[0]
    lines = inside.splitlines()
    places = [number for number, line in enumerate(lines) if line.split(" | ")[0] == name]
    lines[places[0] if places else len(lines) :] = [row, *lines[places[0] + 1 :]] if places else [row]
    return before + found + "\n".join(lines) + "\n" + ended + after


def rows(page: str, table: str) -> list[list[str]]:
    """The cells of a table, without its head."""
    inside = page.partition(begin(table) + "\n")[2].partition(END)[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in inside.splitlines()[2:]]
