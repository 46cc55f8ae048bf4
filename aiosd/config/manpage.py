"""The list of settings in aiosd.conf(5), made from the table of settings, so that the two cannot disagree.

`python3 -m aiosd.config.manpage docs/man/aiosd.conf.5.md` puts it between the two markers of that file.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from aiosd.config.settings import Section, Setting, settings

BEGIN = "<!-- settings: made by aiosd.config.manpage -->"
END = "<!-- end of settings -->"

_ABOUT = {
    Section.SCHEDULER: "How many tasks run at a time, and how long things may take.",
    Section.STORE: "What is kept, how much of it and for how long.",
    Section.LIMITS: "What one user or one connection may take of the daemon. None of it bounds what runs already.",
    Section.WEBHOOKS: "Where and how events are delivered over HTTP.",
    Section.PERMISSIONS: "How long consent is kept, and how long it is waited for. The ceiling over it is in "
    "`/etc/aios/permission-policy.toml`.",
}


def setting_list() -> str:
    """The sections of settings, as Markdown."""
    table = list(settings())
    parts = []
    for section, about in _ABOUT.items():
        parts.append(f"## [{section}] SECTION\n\n{about}\n")
        parts.extend(_entry(setting) for setting in table if setting.section is section)
    return "\n".join(parts)


def _entry(setting: Setting) -> str:
    facts = f"({setting.kind.words}; default: {setting.default_text}.)"
    text = textwrap.wrap(f"{setting.help} {facts}", 112, break_long_words=False, break_on_hyphens=False)
    return f"*{setting.name}=*\n:   " + "\n    ".join(text) + "\n"


def rendered(page: str) -> str:
    """`page` with what is between its markers made anew. Raises ValueError when it has no markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no markers")
    return f"{before}{BEGIN}\n\n{setting_list()}\n{END}{after}"


def main() -> None:
    """Rewrite the page that is named on the command line."""
    page = Path(sys.argv[1])
    page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
