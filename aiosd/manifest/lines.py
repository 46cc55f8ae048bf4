"""On which line of a TOML text a key stands, which `tomllib` does not tell.

The text has already been accepted by `tomllib`, so this only has to walk over values, not to judge them: strings of all
four kinds, arrays and inline tables are skipped as wholes. Keys inside inline tables get the line of their table.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)+")
_NAME = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_PART = re.compile(_NAME)
_KEY = re.compile(rf"[ \t]*({_NAME}[ \t]*(?:\.[ \t]*{_NAME}[ \t]*)*)")
_HEADER = re.compile(r"\[\[?")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")' r"|'''.*?'{3,5}(?!')" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'",
    re.DOTALL,
)

Path = tuple[str, ...]


def key_lines(text: str) -> dict[Path, int]:
    """Line (from 1) of the first mention of every key and table header, by path."""
    lines: dict[Path, int] = {}
    table: Path = ()
    position = 0
    while position < len(text):
        blank = _BLANK.match(text, position)
        if blank is not None:
            position = blank.end()
            continue
        line = text.count("\n", 0, position) + 1
        header = _HEADER.match(text, position)
        found = _KEY.match(text, position if header is None else header.end())
        if found is None:
            break
        path = _parts(found[1])
        if header is not None:
            table = path
            position = _end_of_line(text, found.end())
        else:
            path = table + path
            position = _end_of_value(text, found.end())
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """The line of `path`, or of the nearest thing that encloses it."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _parts(dotted: str) -> Path:
    return tuple(_unquote(part) for part in _PART.findall(dotted))


def _unquote(part: str) -> str:
    return next(iter(tomllib.loads(f"{part} = 0")))


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _end_of_value(text: str, position: int) -> int:
    depth = 0
    while position < len(text):
        char = text[position]
        if char in "\"'":
            found = _STRING.match(text, position)
            position = len(text) if found is None else found.end()
            continue
        if char == "#":
            position = _end_of_line(text, position)
            continue
        if char == "\n" and depth == 0:
            return position
        depth += (char in "[{") - (char in "]}")
        position += 1
    return position
