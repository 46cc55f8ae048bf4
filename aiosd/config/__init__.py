"""The daemon's configuration, aiosd.conf(5). `load()` never fails: what is wrong is warned of and the default kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.config.files import DIRECTORIES, Assignment, ConfigWarning, assignments, chosen_files, read
from aiosd.config.settings import Config, Section, Setting, settings
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["DIRECTORIES", "Config", "ConfigWarning", "Loaded", "Section", "Setting", "load", "settings"]

_TABLE = {setting.name: setting for setting in settings()}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The configuration, the files it came from in order of application, and what is to be said about them."""

    config: Config
    files: tuple[Path, ...] = ()
    warnings: tuple[ConfigWarning, ...] = ()


def load(directories: Sequence[Path] = DIRECTORIES) -> Loaded:
    """Read the configuration. `directories`: the strongest first. Blocking, a few small files."""
    warnings: list[ConfigWarning] = []
    values: dict[str, object] = {}
    files = chosen_files(directories)
    for file in files:
        try:
            text = read(file)
        except OSError as error:
            warnings.append(ConfigWarning(file, None, f"cannot be read, ignored: {error.strerror}"))
            continue
        except UnicodeDecodeError:
            warnings.append(ConfigWarning(file, None, "not UTF-8, ignored"))
            continue
        except ValueError as error:
            warnings.append(ConfigWarning(file, None, f"{error}, ignored"))
            continue
        for found in assignments(file, text):
            problem = found if isinstance(found, ConfigWarning) else _apply(found, values)
            if problem is not None:
                warnings.append(problem)
    return Loaded(replace(Config(), **values), tuple(files), tuple(warnings))  # type: ignore[arg-type]  # kinds made them


def _apply(found: Assignment, values: dict[str, object]) -> ConfigWarning | None:
    """Put one assignment into `values`; an empty value goes back to the default."""
    if found.section is not None and found.section.startswith("X-"):
        return None
    setting = _TABLE.get(found.name)
    if setting is None or setting.section != found.section:
        place = f"in section [{found.section}]" if found.section is not None else "outside of any section"
        return ConfigWarning(found.file, found.line, f"unknown setting {found.name!r} {place}, ignored")
    if not found.value:
        values.pop(found.name, None)
        return None
    try:
        values[found.name] = setting.kind.parse(found.value)
    except ValueError as error:
        return ConfigWarning(found.file, found.line, f"{found.name}={found.value}: {error}; ignored")
    return None
