"""Packages of other versions than this checkout's: one of an earlier state of the project, and the one after this."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

from aiosd import __version__
from aiosd.store.migrations import MIGRATIONS
from tests import prerequisites
from tests.rig import cache, host

if TYPE_CHECKING:
    from pathlib import Path

#: exit status of packaging/tools where the tools cannot be had
EX_UNAVAILABLE = 69

#: The sources of an earlier state of the project (commit 3043da7 of 2026-11-30, without tests and image), from whose
#: programs upgrades start. Kept as they were, as a checkout may come without its history.
EARLIER_SOURCE = host.CHECKOUT / "tests/fixtures/earlier.tar.xz"
EARLIER = "0.1.0~earlier"
NEXT = f"{__version__}+next"
#: packages of this checkout in the cache
KEPT = 4
#: The next version's database: one step more, of the kind that an older program can live with.
STEP = """

MIGRATIONS = (*MIGRATIONS, Migration(Version({level}, {sublevel}), "CREATE TABLE next_version (note TEXT) STRICT;"))
"""


def next_database() -> str:
    """The version of the next version's database."""
    newest = MIGRATIONS[-1].version
    return f"{newest.level}.{newest.sublevel + 1}"


def build(source: Path, directory: Path, *options: str) -> Path:
    """The package of a source tree; where it is. Lintian, if asked, has nothing to say."""
    command = [str(source / "packaging/build"), *options, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == EX_UNAVAILABLE:
        prerequisites.missing(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "lintian has nothing to say"
    [package] = directory.glob("*.deb")
    return package


def build_once(source: Path, directory: Path) -> Path:
    """As `build`, unless there is one of the same files in the cache. The name is that of the package."""
    kept = host.cache_directory() / f"aiosd-{_digest(source)}"
    with host.locked(host.cache_directory() / "package.lock"):
        if not kept.is_dir():
            for old in _oldest(host.cache_directory()):
                shutil.rmtree(old)
            fresh = kept.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            build(source, fresh)
            fresh.rename(kept)
        [package] = kept.glob("*.deb")
        shutil.copy(package, directory)
    return directory / package.name


def _oldest(cache: Path) -> list[Path]:
    """Packages in the cache that are one too many."""
    found = [path for path in cache.glob("aiosd-*") if path.is_dir()]
    return sorted(found, key=lambda path: path.stat().st_mtime)[: -KEPT + 1]


def _digest(source: Path) -> str:
    """Of the files of a tree: their names, whether they are programs, their contents."""
    found = hashlib.sha256()
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        found.update(f"{file.relative_to(source)} {file.stat().st_mode & 0o100} {content}\n".encode())
    return found.hexdigest()[:16]


def build_earlier(directory: Path) -> Path:
    """The package of `EARLIER_SOURCE`: its own code, by its own rules, as a lower version. Kept between runs."""
    digest = hashlib.sha256(EARLIER_SOURCE.read_bytes()).hexdigest()[:16]
    kept = host.cache_directory() / f"aiosd-{EARLIER}-{digest}.deb"
    target = directory / f"aiosd-{EARLIER}.deb"
    with host.locked(kept.with_suffix(".lock")):
        if not kept.exists():
            source = directory / "earlier"
            with tarfile.open(EARLIER_SOURCE) as archive:
                archive.extractall(source, filter="data")
            log = source / "packaging/debian/changelog"
            log.write_text(re.sub(r"\(.*?\)", f"({EARLIER})", log.read_text(), count=1))
            built = build(source, directory / "built", "--unjudged")
            shutil.copy(built, kept.with_suffix(".new"))
            kept.with_suffix(".new").rename(kept)
            cache.forget(f"aiosd-{EARLIER}-*")
        shutil.copy(cache.use(kept), target)
    return target


def build_next(package: Path, directory: Path) -> Path:
    """`package` as a higher version, with a database one step ahead."""
    tree = directory / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(tree)], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {__version__}\n", f"Version: {NEXT}\n"))
    code = tree / "usr/lib/python3/dist-packages/aiosd"
    with (code / "store/migrations/__init__.py").open("a") as module:
        level, sublevel = next_database().split(".")
        module.write(STEP.format(level=level, sublevel=sublevel))
    own = code / "__init__.py"
    own.write_text(own.read_text().replace(f'"{__version__}"', f'"{NEXT}"'))
    sums = [
        f"{hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()}  {file.relative_to(tree)}\n"
        for file in sorted(tree.rglob("*"))
        if file.is_file() and "DEBIAN" not in file.parts
    ]
    (tree / "DEBIAN/md5sums").write_text("".join(sums))
    built = directory / "next.deb"
    pack = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(tree), str(built)]
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
    return built
