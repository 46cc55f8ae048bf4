"""The shim's side of shared context, and the view of a program that is kept to research."""

from __future__ import annotations

import base64
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.manifest.parse import parse_manifest
from aiosd.model.manifest import Capability, HomeView, Network
from aiosd.run.context import ContextError, keep
from aiosd.run.identity import Identified, for_research, view_for
from aiosd.run.protocol import Refusal
from aiosd.run.syscalls import Account

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject


def piece(name: str, data: bytes, *, first: bool = True) -> JsonObject:
    return {"name": name, "data": base64.b64encode(data).decode(), "first": first}


def test_pieces_become_files_that_only_the_program_reads(tmp_path: Path) -> None:
    folder = tmp_path / "context"
    keep(str(folder), piece("context.json", b"{"))
    keep(str(folder), piece("context.json", b"}", first=False))
    assert (folder / "context.json").read_bytes() == b"{}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "context.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "/etc/passwd", "x" * 300, "a\0b"])
def test_a_name_is_one_plain_component(tmp_path: Path, name: str) -> None:
    with pytest.raises(ContextError):
        keep(str(tmp_path / "context"), piece(name, b"x"))
    assert not list(tmp_path.rglob("*")) or list(tmp_path.iterdir()) == [tmp_path / "context"]


def test_what_is_there_already_is_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "context"
    folder.mkdir()
    (tmp_path / "elsewhere").write_text("kept")
    (folder / "a").symlink_to(tmp_path / "elsewhere")
    (folder / "b").write_text("kept")
    for name, first in (("a", True), ("a", False), ("b", True)):
        with pytest.raises(ContextError):
            keep(str(folder), piece(name, b"x", first=first))
    assert (tmp_path / "elsewhere").read_text() == "kept"
    assert (folder / "b").read_text() == "kept"
    with pytest.raises(ContextError):
        keep(str(folder), {"name": "c", "data": "not base 64!", "first": True})


def capability(extra: str, level: str = "high") -> Capability:
    text = f'id = "a.b"\ntitle = "t"\ndescription = "d"\nlevel = "{level}"\nexec = ["/bin/true"]\n{extra}'
    found = parse_manifest(text.encode(), "a.b.toml").capability
    assert found is not None
    return found


def test_research_sees_what_it_saw_and_changes_nothing() -> None:
    free = capability('home = "read-write"\nnetwork = "host"\n')
    kept = for_research(replace(free, read_write_paths=("/srv/data",)))
    assert (kept.home, kept.network, kept.read_write_paths) == (HomeView.READ_ONLY, Network.NONE, ())
    assert replace(kept, home=free.home, network=free.network) == free, "and nothing else is different"
    bare = for_research(capability('home = "none"\nnetwork = "netlink"\n', "low"))
    assert (bare.home, bare.network) == (HomeView.NONE, Network.NETLINK)


@pytest.mark.parametrize("level", ["public", "low", "medium", "high"])
def test_research_reaches_no_service(level: str, tmp_path: Path) -> None:
    who = Identified(Account(1000, 1000, ()), "nobody-here", None, "/bin/sh", dynamic=False)
    kept = for_research(capability('network = "none"\n', level))
    assert "/run" in view_for(kept, who, tmp_path, research=True).hidden
    otherwise = "/run" in view_for(kept, who, tmp_path).hidden
    assert otherwise == (level in ("public", "low")), "what is no research talks to services from level medium on"


def test_what_sees_the_system_as_it_is_cannot_be_kept_to_research() -> None:
    with pytest.raises(Refusal):
        for_research(capability('user = "root"\n', "critical"))
