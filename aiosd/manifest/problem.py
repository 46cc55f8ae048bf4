"""What can be wrong with a manifest, said so that its author finds the place."""

from __future__ import annotations

from enum import StrEnum

from aiosd.model.later import dataclass


class Severity(StrEnum):
    """Whether the file is refused, or only remarked upon."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `line` counts from 1 and is None where no line is at fault; `key` is dotted, empty for the file."""

    file: str
    line: int | None
    key: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        """As compilers say it: `file:line: error: key: message`."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.severity}: {self.key + ': ' if self.key else ''}{self.message}"
