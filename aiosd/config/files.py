"""Which configuration files count, and what is written in them. The rules are those of systemd-system.conf(5).

Of the main file the one in the strongest directory counts, as a whole. Then all drop-ins, in the order of their names
whatever their directory; of equal names the strongest directory's counts. Empty, or a link to /dev/null: masked.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DIRECTORIES = (Path("/etc/aios"), Path("/run/aios"), Path("/usr/lib/aios"))
"""Where files are looked for, the strongest first."""

MAIN = "aiosd.conf"
MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """What is wrong in a file. `line` counts from 1; None when it is the file as a whole."""

    file: Path
    line: int | None
    message: str

    def __str__(self) -> str:
        """`file:line: message`, as compilers and systemd say it."""
        place = f"{self.file}:{self.line}" if self.line is not None else str(self.file)
        return f"{place}: {self.message}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `name=value` and where it stands. `section` is None before the first header."""

    file: Path
    line: int
    section: str | None
    name: str
    value: str


def chosen_files(directories: Sequence[Path] = DIRECTORIES) -> list[Path]:
    """The files that count, in the order in which they are applied."""
    chosen = [found for directory in directories if _exists(found := directory / MAIN)][:1]
    dropins: dict[str, Path] = {}
    for directory in reversed(directories):
        for file in _dropins(directory / f"{MAIN}.d"):
            dropins[file.name] = file
    return chosen + [dropins[name] for name in sorted(dropins)]


def _exists(path: Path) -> bool:
    try:
        return path.is_file() or path.is_char_device()
    except OSError:
        return False


def _dropins(directory: Path) -> list[Path]:
    try:
        return [file for file in directory.iterdir() if file.name.endswith(".conf") and not file.name.startswith(".")]
    except OSError:
        return []


def read(file: Path) -> str:
    """The text of a file, empty when it is masked. Raises OSError, UnicodeDecodeError, ValueError (too long)."""
    with file.open("rb") as stream:
        raw = stream.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes")
    return raw.decode("utf-8")


def assignments(file: Path, text: str) -> Iterator[Assignment | ConfigWarning]:
    """What is assigned in `text`, in order, and what cannot be understood (systemd.syntax(7))."""
    section: str | None = None
    for number, line in _logical_lines(text):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            yield ConfigWarning(file, number, "neither a section nor an assignment, ignored")
        else:
            yield Assignment(file, number, section, name.strip(), value.strip())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without blanks and comments; those that end in a backslash are joined with the next by a space."""
    start, joined = 0, ""
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if line.startswith(("#", ";")) or (not line and not joined):
            continue
        start = start or number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        if joined + line:
            yield start, (joined + line).strip()
        start, joined = 0, ""
    if joined.strip():
        yield start, joined.strip()
