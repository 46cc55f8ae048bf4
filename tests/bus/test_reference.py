"""docs/dbus.md is what its sources say now, and its recorded transcript survives being made again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.bus.interfaces import load
from aiosd.bus.members import MEMBERS
from aiosd.bus.reference import main, reference, transcript_of

if TYPE_CHECKING:
    from aiosd.bus.member import Member

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


@pytest.mark.parametrize("member", MEMBERS.values(), ids=lambda member: member.name)
def test_options_are_documented_with_their_types_and_no_others(member: Member) -> None:
    doc = load()[member.interface].methods[member.name].doc
    assert doc
    said = re.split(r"\. (?=[A-Z])", doc.partition("options: ")[2])[0]
    documented = dict(re.findall(r"\b([a-z_]+) \(([a-z]+)[:;)]", said))
    assert documented == {name: option.type for name, option in (member.options or {}).items()}
