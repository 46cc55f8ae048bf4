"""What is shipped and written about manifests: the man page is current, the pack and every example are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiosd.manifest.keys import KEYS
from aiosd.manifest.manpage import rendered
from aiosd.manifest.parse import parse_manifest
from aiosd.manifest.schema import check_for_manifest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/man/aios.capability.5.md"
GUIDE = ROOT / "docs/capabilities.md"
PACK = ROOT / "packaging/capabilities.d"

STANDARD = {
    "system.info.read": "public",
    "system.network.interfaces": "public",
    "system.disk.usage": "public",
    "system.journal.errors": "medium",
    "files.checksum": "low",
    "system.unit.restart": "high",
    "system.power.reboot": "critical",
    "compat.command.run": "critical",
}


def test_the_man_page_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rendered(page) == page, "run python3 -m aiosd.manifest.manpage docs/man/aios.capability.5.md"


def test_the_man_page_has_every_key() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {f"*{key.path[-1]}=*" for key in KEYS} <= set(page.splitlines())


def test_the_standard_pack_is_the_issues_and_without_a_remark() -> None:
    levels = {}
    for path in sorted(PACK.iterdir()):
        parsed = parse_manifest(path.read_bytes(), str(path), check_schema=check_for_manifest)
        assert parsed.capability is not None, parsed.problems
        assert parsed.problems == ()
        assert parsed.capability.result_schema is not None
        assert parsed.capability.estimated_duration_ms is not None or path.stem == "compat.command.run"
        levels[parsed.capability.id] = parsed.capability.level.wire
    assert levels == STANDARD


def examples(path: Path) -> list[str]:
    """Manifests in fenced or indented code: everything from an `id =` line to the end of its block."""
    text = path.read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for block in re.findall(r"(?:^(?:    .*)?\n)+", text, re.MULTILINE):
        blocks.append(re.sub(r"^    ", "", block, flags=re.MULTILINE))
    return [block for block in blocks if re.search(r"^id = ", block, re.MULTILINE)]


@pytest.mark.parametrize(("path", "count"), [(PAGE, 1), (GUIDE, 2), (ROOT / "README.md", 1)])
def test_every_manifest_in_the_documentation_is_right(path: Path, count: int) -> None:
    found = examples(path)
    assert len(found) == count
    for text in found:
        name = re.search(r'^id = "(.+)"$', text, re.MULTILINE)
        assert name is not None
        parsed = parse_manifest(text.encode(), f"{name[1]}.toml", check_schema=check_for_manifest)
        assert parsed.capability is not None, parsed.problems
        assert parsed.problems == ()
