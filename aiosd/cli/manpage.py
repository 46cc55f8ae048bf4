"""The verb lists and the exit statuses of aiosctl(1), made from the click tree and the table of exit statuses.

`python3 -m aiosd.cli.manpage docs/man/aiosctl.1.md` puts them between that file's markers; a test holds it current.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiosd.cli.exit_status import MEANINGS, TASK_MEANINGS
from aiosd.cli.main import VERBS

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMON = frozenset({"json", "color", "no_ask_password"})
"""Options that every verb has; they are described once."""

_BLOCK = re.compile(r"(<!-- (verbs|exit status): made by aiosd\.cli\.manpage -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def verbs() -> str:
    """Every verb by section, with its options."""
    parts: list[str] = []
    for section in dict.fromkeys(verb.section for verb in VERBS.values()):
        parts.append(f"### {section}\n")
        for verb in VERBS.values():
            if verb.section == section:
                parts += _command(verb.load(), verb.name)
    return "\n".join(parts)


def _command(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for inner, child in command.commands.items():
            yield from _command(child, f"{name} {inner}")
        return
    positional = " ".join(_argument(each) for each in command.params if isinstance(each, click.Argument))
    yield f"**{name}** {positional}".rstrip()
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    for index, paragraph in enumerate(paragraphs):
        yield _indented(" ".join(paragraph.split()), first=": " if index == 0 else "  ") + "\n"
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in COMMON:
            yield from _option(option)


def _argument(argument: click.Argument) -> str:
    text = argument.metavar or (argument.name or "").upper()
    if isinstance(argument.type, click.Choice):
        text = "|".join(argument.type.choices)
    if argument.nargs == -1 and not text.endswith("..."):
        text += "..."
    escaped = text.replace("*", r"\*")
    return f"*{escaped}*" if argument.required or argument.metavar else f"[*{escaped}*]"


def _option(option: click.Option) -> Iterator[str]:
    value = "" if option.is_flag else f"={_value(option)}"
    written = sorted([*option.opts, *option.secondary_opts], key=lambda name: not name.startswith("--"))
    names = ", ".join(f"**{name}{value if name.startswith('--') else ''}**" for name in written)
    yield f"  {names.replace('--', chr(92) + '-' + chr(92) + '-')}"
    default = f" The default is {option.default}." if option.show_default else ""
    yield _indented((option.help or "") + default, first="  : ") + "\n"


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return option.metavar or (option.type.name or "").removesuffix(" range").upper().replace("INTEGER", "N")


def _indented(text: str, first: str) -> str:
    return textwrap.fill(text, 112, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False)


def exit_statuses() -> str:
    """The table of exit statuses."""
    rows = [f"| {int(status)} | {meaning} |" for status, meaning in MEANINGS.items()]
    rows += [f"| {status} | {meaning} |" for status, meaning in TASK_MEANINGS.items()]
    return "\n".join(["| status | meaning |", "|---|---|", *rows]) + "\n"


def updated(page: str) -> str:
    """The page with its made parts made anew."""
    made = {"verbs": verbs, "exit status": exit_statuses}
    return _BLOCK.sub(lambda match: f"{match[1]}\n{made[match[2]]()}\n{match[3]}", page)


def main() -> None:
    """Rewrite the page that is named on the command line."""
    page = Path(sys.argv[1])
    page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
