"""docs/dbus.md is what its sources say now, and its recorded transcript survives being made again."""

from __future__ import annotations

from pathlib import Path

from aiosd.bus.interfaces import load
from aiosd.bus.reference import main, reference, transcript_of

PAGE = Path(__file__).parents[2] / "docs" / "dbus.md"


def test_the_page_is_current() -> None:
    text = PAGE.read_text()
    assert text == reference(load(), transcript_of(text)), "run: python -m aiosd.bus.reference docs/dbus.md"


def test_a_transcript_is_kept(tmp_path: Path) -> None:
    page = tmp_path / "dbus.md"
    page.write_text(reference(load(), "```\n$ busctl …\n```"))
    main(page)
    assert transcript_of(page.read_text()) == "```\n$ busctl …\n```"
    assert "\n### CreateTask\n" in page.read_text()
