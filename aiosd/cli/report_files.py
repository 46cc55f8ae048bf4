"""Configuration as a bug report has it: what our keys say. Comments, and what is not ours, stay with who wrote them.

What a person put beside our keys may be anything, a password too, and nothing can recognise all of that.
"""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

from aiosd.auth import ceiling
from aiosd.config.files import ConfigWarning, assignments, read
from aiosd.config.settings import Section, settings

if TYPE_CHECKING:
    from pathlib import Path

LEFT_OUT = "[left out]"


def of_configuration(path: Path) -> str:
    """The settings of aiosd.conf(5) in a file."""
    try:
        text = read(path)
    except (OSError, ValueError) as error:
        return _not_read(error)
    known = {(setting.section.value, setting.name) for setting in settings()}
    lines: list[str] = []
    section: str | None = None
    for found in assignments(path, text):
        if isinstance(found, ConfigWarning):
            lines.append(f"{LEFT_OUT}: line {found.line}, {found.message}")
            continue
        if found.section != section:
            section = found.section
            lines.append(f"[{section}]" if section in [*Section] else f"{LEFT_OUT}: a section that is not aiosd's")
        ours = (section, found.name) in known
        lines.append(f"{found.name}={found.value}" if ours else f"{LEFT_OUT}: line {found.line}, no setting of aiosd's")
    return "\n".join(lines)


def of_policy(path: Path) -> str:
    """The keys of a policy file (docs/permissions.md)."""
    try:
        document = tomllib.loads(read(path))
    except OSError as error:
        return _not_read(error)
    except (ValueError, RecursionError):
        return f"{LEFT_OUT}: it is not TOML"
    lines = [
        f"{name} = {json.dumps(value, default=str)}" if name in ceiling.NAMES else f"{LEFT_OUT}: no key of aiosd's"
        for name, value in document.items()
    ]
    return "\n".join(lines)


def _not_read(error: Exception) -> str:
    return f"not read: {error.strerror if isinstance(error, OSError) else 'not UTF-8, or too long'}"
