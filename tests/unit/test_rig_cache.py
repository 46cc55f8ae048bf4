"""What the tests' rig keeps: in its cache is what was used lately, and what a box that is up was booted from."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.rig import cache, host

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two root directories, a disk image and something else, all of them from the day before yesterday."""
    monkeypatch.setenv("AIOSD_RIG_CACHE", str(tmp_path / "cache"))
    (tmp_path / "boxes").mkdir()
    monkeypatch.setattr(host, "state_directory", lambda: tmp_path / "boxes")
    place = host.cache_directory()
    for name in ("trixie-1", "trixie-2"):
        (place / name / "root/etc").mkdir(parents=True)
    for name in ("trixie-1-a.ext4", "packages.lock"):
        (place / name).touch()
    before = time.time() - 2 * cache.UNUSED
    for thing in place.iterdir():
        os.utime(thing, (before, before))
    return place


def test_what_was_used_lately_stays(kept: Path) -> None:
    cache.use(kept / "trixie-2")
    assert sorted(cache.forget("trixie-*")) == [kept / "trixie-1", kept / "trixie-1-a.ext4"]
    assert sorted(path.name for path in kept.iterdir()) == ["packages.lock", "trixie-2"]


@pytest.mark.parametrize("kind", ["", ".machines"])
def test_what_a_box_was_booted_from_stays_until_the_box_is_gone(kept: Path, tmp_path: Path, kind: str) -> None:
    box = tmp_path / "boxes" / kind / "box"
    box.mkdir(parents=True)
    cache.hold(box, kept / "trixie-1/root", kept / "trixie-1-a.ext4")
    assert cache.forget("trixie-*") == [kept / "trixie-2"]
    (box / cache.HOLDS).unlink()
    assert len(cache.forget("trixie-*")) == 2
