"""Manifests as tests write them: one that is right, and the same with changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.manifest.parse import ParsedManifest, parse_manifest
from aiosd.manifest.schema import check_for_manifest

if TYPE_CHECKING:
    from aiosd.model.manifest import Capability

RIGHT = """\
id = "test.thing.do"
title = "Do a thing"
description = "Does a thing."
level = "medium"
exec = ["/usr/bin/true"]
"""


def parse(text: str, name: str = "test.thing.do.toml") -> ParsedManifest:
    """With schemas checked, as the daemon and the checker do."""
    return parse_manifest(text.encode(), f"/etc/aios/capabilities.d/{name}", check_schema=check_for_manifest)


def accepted(text: str) -> Capability:
    """The capability; the test fails with the problems when it is refused."""
    parsed = parse(text)
    assert parsed.capability is not None, parsed.problems
    return parsed.capability


def replaced(key: str, line: str) -> str:
    """RIGHT with the line of `key` replaced by `line` (empty: left out)."""
    lines = [line if text.startswith(f"{key} ") else text for text in RIGHT.splitlines()]
    return "\n".join(text for text in lines if text) + "\n"
