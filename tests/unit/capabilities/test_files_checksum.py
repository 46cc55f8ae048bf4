"""`files.checksum` against coreutils, with trees made to be difficult."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.unit.capabilities.shim_side import Run

TOOLS = {"sha256": "sha256sum", "sha512": "sha512sum", "blake2b": "b2sum"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Names that sort as paths and not as entries, that need escapes, that are no UTF-8; links; an empty file."""
    root = tmp_path / "tree"
    files = [
        b"a/x",
        b"a.b",
        b"a b",
        b"a-",
        b"a/y/z",
        b"new\nline",
        b"back\\slash",
        b"ret\rurn",
        b"\xff\xfe",
        b"-n",
        b"empty",
    ]
    for name in files:
        path = root / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name * 1000 if name != b"empty" else b"")
    (root / "link").symlink_to("a.b")
    (root / "loop").symlink_to(".")
    os.mkfifo(root / "pipe")
    return root


def coreutils(root: Path, algorithm: str) -> bytes:
    """The same list by find, sort and the checksum tool."""
    script = f'cd "$1" && find . -xdev -type f -printf "%P\\0" | LC_ALL=C sort -z | xargs -0 -r {TOOLS[algorithm]} --'
    return subprocess.run(["sh", "-c", script, "sh", str(root)], capture_output=True, check=True).stdout


def scratch(tmp_path: Path) -> Path:
    made = tmp_path / "scratch"
    made.mkdir()
    return made


@pytest.mark.parametrize("algorithm", TOOLS)
def test_a_tree_as_coreutils_has_it(tree: Path, tmp_path: Path, algorithm: str) -> None:
    place = scratch(tmp_path)
    with Run("files.checksum", {"path": str(tree), "algorithm": algorithm}, place) as run:
        result = run.result()
    expected = coreutils(tree, algorithm)
    listing = place / "checksums.txt"
    assert listing.read_bytes() == expected
    digest = (
        subprocess.run([TOOLS[algorithm], str(listing)], capture_output=True, check=True).stdout.split()[0].decode()
    )
    total = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    assert result == {"algorithm": algorithm, "files": 11, "bytes": total, "errors": 0, "digest": digest}
    artifacts = [chunk["payload"] for chunk in run.chunks if chunk["type"] == "artifact"]
    assert [(item["name"], item["type"]) for item in artifacts if isinstance(item, dict)] == [
        ("checksums", "file"),
        ("summary", "data"),
    ]


def test_the_list_checks(tree: Path, tmp_path: Path) -> None:
    place = scratch(tmp_path)
    with Run("files.checksum", {"path": str(tree)}, place) as run:
        run.result()
    subprocess.run(["sha256sum", "--check", "--quiet", str(place / "checksums.txt")], cwd=tree, check=True)


def test_one_file_and_a_pattern(tree: Path, tmp_path: Path) -> None:
    place = scratch(tmp_path)
    with Run("files.checksum", {"path": str(tree / "a.b")}, place) as run:
        assert run.result()["files"] == 1
    assert (place / "checksums.txt").read_bytes().endswith(b"  a.b\n")
    with Run("files.checksum", {"path": str(tree), "pattern": "[xz]"}, place) as run:
        assert run.result()["files"] == 2
    assert [line.split(b"  ")[1] for line in (place / "checksums.txt").read_bytes().splitlines()] == [b"a/x", b"a/y/z"]


def test_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with Run("files.checksum", {"path": str(tmp_path / "tree")}, scratch(tmp_path)) as run:
        result = run.result()
    # sha256sum </dev/null
    nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (result["files"], result["bytes"], result["digest"]) == (0, 0, nothing)


@pytest.mark.parametrize("target", ["link", "pipe", "missing"])
def test_what_is_neither_file_nor_directory_fails_with_a_reason(tree: Path, tmp_path: Path, target: str) -> None:
    with Run("files.checksum", {"path": str(tree / target)}, scratch(tmp_path)) as run:
        failure = run.finish().failure
    words = {"link": "symbolic link", "pipe": "neither", "missing": "No such file"}
    assert words[target] in failure


def test_a_path_too_long_for_the_kernel_is_an_error_of_that_path(tree: Path, tmp_path: Path) -> None:
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tree)
        for _ in range(20):
            Path("d" * 250).mkdir()
            os.chdir("d" * 250)
        Path("deep").write_text("x")
    finally:
        os.fchdir(before)
        os.close(before)
    with Run("files.checksum", {"path": str(tree)}, scratch(tmp_path)) as run:
        result = run.result()
        summary = [chunk["payload"] for chunk in run.chunks if chunk["type"] == "artifact"][1]
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    assert (result["files"], result["errors"]) == (11, 1)
    assert "File name too long" in str(summary)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user who may not read")
def test_a_file_that_may_not_be_read_is_an_error_of_that_file(tree: Path, tmp_path: Path) -> None:
    (tree / "a.b").chmod(0)
    with Run("files.checksum", {"path": str(tree)}, scratch(tmp_path), ["setpriv", "--bounding-set=-all"]) as run:
        result = run.result()
    assert (result["files"], result["errors"]) == (10, 1)


def progress(run: Run) -> list[dict[str, object]]:
    found = [chunk["payload"] for chunk in run.chunks if chunk["type"] == "processing"]
    return [item["progress"] for item in found if isinstance(item, dict) and "progress" in item]


def big(tmp_path: Path, megabytes: int) -> Path:
    root = tmp_path / "big"
    root.mkdir()
    for number in range(2):
        with (root / f"file{number}").open("wb") as file:
            file.truncate(megabytes << 19)
    return root


def test_progress_is_by_bytes_steady_and_seldom(tmp_path: Path) -> None:
    began = time.monotonic()
    with Run("files.checksum", {"path": str(big(tmp_path, 500))}, scratch(tmp_path)) as run:
        run.result()
    seconds = time.monotonic() - began
    reports = progress(run)
    percents = [float(str(report["percent"])) for report in reports]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert any(0 < percent < 50 for percent in percents), "within the first file, not only between files"
    assert 2 < len(reports) <= seconds * 5 + 3
    assert all(report["total_steps"] == 2 for report in reports[1:])


def test_pause_stops_the_work_and_resume_goes_on(tmp_path: Path) -> None:
    root = big(tmp_path, 400)
    with Run("files.checksum", {"path": str(root)}, scratch(tmp_path)) as run:
        run.until("processing")
        run.send({"type": "pause", "id": 7})
        assert run.until("paused")["id"] == 7
        used = cpu_seconds(run)
        run.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            run.read()
        assert cpu_seconds(run) - used < 0.05
        run.socket.settimeout(60)
        run.send({"type": "resume", "id": 8})
        result = run.result()
    assert result["bytes"] == 400 << 20


def test_cancel_ends_the_work_early(tmp_path: Path) -> None:
    with Run("files.checksum", {"path": str(big(tmp_path, 4000))}, scratch(tmp_path)) as run:
        run.until("processing")
        run.send({"type": "cancel", "id": 9, "reason": "enough"})
        outcome = run.finish()
    assert not outcome.of("task_completion")


def cpu_seconds(run: Run) -> float:
    """User and system time of the program so far (proc_pid_stat(5), fields 14 and 15)."""
    fields = Path(f"/proc/{run.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in itertools.islice(fields, 11, 13)) / os.sysconf("SC_CLK_TCK")
