"""The key list of aios.capability(5), made from the table of keys, so that the two cannot disagree.

`python3 -m aiosd.manifest.manpage docs/man/aios.capability.5.md` puts it between the two markers of that file.
"""

from __future__ import annotations

import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.manifest.keys import KEYS, Applies
from aiosd.manifest.levels import in_words
from aiosd.model.manifest import LEVEL_DEFAULTS, Identity, Limits

if TYPE_CHECKING:
    from aiosd.manifest.keys import Key

BEGIN = "<!-- keys: made by aiosd.manifest.manpage -->"
END = "<!-- end of keys -->"

_SECTIONS = {
    (): "KEYS",
    ("limits",): "[limits] SECTION",
    ("retry",): "[retry] SECTION",
}


def key_list() -> str:
    """The sections on keys and the table of levels, as Markdown."""
    parts = []
    for table, heading in _SECTIONS.items():
        parts.append(f"## {heading}\n")
        parts.extend(_entry(key) for key in KEYS if key.path[:-1] == table)
    parts.append(_levels())
    return "\n".join(parts)


def _entry(key: Key[object]) -> str:
    facts = [f"a {key.type}" if key.type.value[0] not in "aeiou" else f"an {key.type}"]
    facts.append("required" if key.required else f"default: {key.default_text}")
    if key.applies is not Applies.ALWAYS:
        facts.append(key.applies.value)
    text = textwrap.wrap(f"{key.help} ({'; '.join(facts)}.)", 112, break_long_words=False, break_on_hyphens=False)
    return f"*{key.path[-1]}=*\n:   " + "\n    ".join(text) + "\n"


def _levels() -> str:
    names = [field.name for field in fields(Limits)]
    shown = [name for name in names if any(getattr(row.limits, name) is not None for row in LEVEL_DEFAULTS.values())]
    head = ["level", "user", "home", "network", *(name.removesuffix("_percent") for name in shown)]
    lines = ["## LEVELS\n", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for level, row in LEVEL_DEFAULTS.items():
        user = "(must be said)" if row.identity is Identity.NAMED else row.identity.value
        limits = [_limit(row.limits, name) for name in shown]
        lines.append("| " + " | ".join([level.wire, user, row.home.value, row.network.value, *limits]) + " |")
    return "\n".join(lines) + "\n"


def _limit(limits: Limits, name: str) -> str:
    value: int | None = getattr(limits, name)
    return "none" if value is None else in_words(name, value)


def rendered(page: str) -> str:
    """`page` with what is between its markers made anew. Raises ValueError when it has no markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no markers")
    return f"{before}{BEGIN}\n\n{key_list()}\n{END}{after}"


def main() -> None:
    """Rewrite the page that is named on the command line."""
    page = Path(sys.argv[1])
    page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
