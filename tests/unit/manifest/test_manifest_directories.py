"""Which file counts: systemd's rules, and what is not root's does not count."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aiosd.manifest.directories import LoadedCapabilities, fingerprint, load_all, load_one, trace
from tests.unit.manifest.texts import RIGHT

if TYPE_CHECKING:
    from pathlib import Path

ME = os.getuid()
NAME = "test.thing.do"
FILE = f"{NAME}.toml"


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Usr, run and etc."""
    made = (tmp_path / "usr", tmp_path / "run", tmp_path / "etc")
    for place in made:
        place.mkdir(mode=0o755)
    return made


def put(directory: Path, text: str, name: str = FILE, mode: int = 0o644) -> Path:
    path = directory / name
    path.write_text(text)
    path.chmod(mode)
    return path


def titled(title: str) -> str:
    return RIGHT.replace("Do a thing", title)


def load(places: tuple[Path, ...]) -> LoadedCapabilities:
    return load_all(places, owner=ME, check_schemas=True)


def both(places: tuple[Path, ...]) -> str | None:
    """The title that counts, which `load_all` and `load_one` must agree on."""
    found = load(places).capabilities.get(NAME)
    one = load_one(NAME, places, owner=ME)
    assert (one is None) == (found is None)
    assert one is None or one == found
    return None if found is None else found.title


def test_etc_over_run_over_usr(places: tuple[Path, Path, Path]) -> None:
    for place in places:
        put(place, titled(place.name))
        assert both(places) == place.name


@pytest.mark.parametrize("mask", ["empty", "link"])
def test_masks(places: tuple[Path, Path, Path], mask: str) -> None:
    put(places[0], RIGHT)
    if mask == "empty":
        put(places[2], "")
    else:
        (places[2] / FILE).symlink_to("/dev/null")
    assert both(places) is None
    assert load(places).problems == ()


def test_an_override_that_is_refused_does_not_bring_the_weaker_file_back(places: tuple[Path, Path, Path]) -> None:
    put(places[0], RIGHT)
    put(places[2], RIGHT + "concurrency = 0\n")
    assert both(places) is None
    (problem,) = load(places).problems
    assert (problem.file, problem.line) == (str(places[2] / FILE), 6)


def test_the_rest_loads(places: tuple[Path, Path, Path]) -> None:
    put(places[0], RIGHT)
    put(places[0], "broken", "test.other.toml")
    put(places[0], "not a manifest", "README")
    put(places[0], "broken", ".hidden.toml")
    loaded = load(places)
    assert list(loaded.capabilities) == [NAME]
    assert [problem.file for problem in loaded.problems] == [str(places[0] / "test.other.toml")]


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_writable_by_others_is_refused(places: tuple[Path, Path, Path], mode: int) -> None:
    put(places[0], RIGHT, mode=mode)
    assert both(places) is None
    assert "may be written" in load(places).problems[0].message


def test_somebody_elses_file_is_refused(places: tuple[Path, Path, Path]) -> None:
    put(places[0], RIGHT)
    loaded = load_all(places, owner=ME + 1)
    assert not loaded.capabilities
    assert any("is owned by user id" in problem.message for problem in loaded.problems)


def test_a_directory_others_may_write_decides_nothing_and_still_hides(places: tuple[Path, Path, Path]) -> None:
    put(places[0], RIGHT)
    put(places[2], titled("theirs"))
    places[2].chmod(0o777)
    assert both(places) is None
    assert load(places).problems[0].file == str(places[2])


def test_links_pipes_and_directories_are_refused_without_waiting(places: tuple[Path, Path, Path]) -> None:
    put(places[1], RIGHT, "elsewhere")
    (places[0] / FILE).symlink_to(places[1] / "elsewhere")
    assert both(places) is None
    assert "symbolic link" in load(places).problems[0].message
    (places[0] / FILE).unlink()
    os.mkfifo(places[0] / FILE, 0o644)
    assert both(places) is None
    (places[0] / FILE).unlink()
    (places[0] / FILE).mkdir()
    assert both(places) is None


def test_too_large_is_refused(places: tuple[Path, Path, Path]) -> None:
    put(places[0], RIGHT + "#" * (64 * 1024))
    assert both(places) is None
    assert "larger than 65536 bytes" in load(places).problems[0].message


def test_no_directories_at_all(tmp_path: Path) -> None:
    loaded = load_all((tmp_path / "no",), owner=ME)
    assert (dict(loaded.capabilities), loaded.problems) == ({}, ())


@pytest.mark.parametrize("name", ["", "..", "../usr/test.thing.do", "test.thing.do\0", "test/thing.do", "x" * 5000])
def test_load_one_finds_nothing_for_what_is_no_id(places: tuple[Path, Path, Path], name: str) -> None:
    put(places[0], RIGHT)
    assert load_one(name, places, owner=ME) is None


def test_the_fingerprint_changes_with_the_files_and_not_without(places: tuple[Path, Path, Path]) -> None:
    seen = [load(places).fingerprint]
    assert fingerprint(places) == seen[0]

    def changed() -> bool:
        now = fingerprint(places)
        fresh = now not in seen
        seen.append(now)
        assert fingerprint(places) == now
        return fresh

    path = put(places[0], RIGHT)
    assert changed()
    path.chmod(0o600)
    assert changed()
    put(places[0], titled("Other"))
    assert changed()
    (places[2] / FILE).symlink_to("/dev/null")
    assert changed()
    path.unlink()
    assert changed()


def test_the_launchers_way_imports_nothing_big(places: tuple[Path, Path, Path]) -> None:
    put(places[0], RIGHT)
    script = (
        "import sys, pathlib; from aiosd.manifest.directories import load_all; "
        f"loaded = load_all((pathlib.Path({str(places[0])!r}),), owner={ME}); "
        "big = {'jsonschema', 'referencing', 'pydantic', 'asyncio'} & set(sys.modules); "
        "print(len(loaded.capabilities), sorted(big))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "1 []\n"


def test_a_trace_changes_with_what_the_capability_depends_on_and_only_with_that(tmp_path: Path) -> None:
    weak, strong = tmp_path / "usr", tmp_path / "etc"
    weak.mkdir()
    (weak / "a.b.toml").write_text("id = 'a.b'\n")
    seen = [trace("a.b", (weak, strong))]
    (weak / "a.c.toml").write_text("")
    assert trace("a.b", (weak, strong)) == seen[0]
    (weak / "a.b.toml").write_text("id = 'a.b' # changed\n")
    seen.append(trace("a.b", (weak, strong)))
    strong.mkdir()
    seen.append(trace("a.b", (weak, strong)))
    (strong / "a.b.toml").symlink_to("/dev/null")
    seen.append(trace("a.b", (weak, strong)))
    weak.chmod(0o777)
    seen.append(trace("a.b", (weak, strong)))
    assert len(set(seen)) == len(seen)
    assert trace("../a", (weak, strong)) == ()
