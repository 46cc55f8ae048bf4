"""The ceiling as the launcher holds it: the daemon's own answer, from the files as they are at this moment."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiosd.auth.ceiling import load
from aiosd.auth.enforced import EnforcedCeiling
from aiosd.auth.ruling import forbidden
from aiosd.manifest.parse import parse_manifest
from aiosd.model.status import Level

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.manifest import Capability

ME = pwd.getpwuid(os.getuid())
TEXTS = st.sampled_from(
    [None, "", 'max_permission_level = "high"', 'max_permission_level = "low"', 'always_deny = ["a.*"]', "x = 1", "]"]
)  # fmt: skip


def capability(level: Level) -> Capability:
    text = f'id = "a.b"\ntitle = "t"\ndescription = "d"\nlevel = "{level.wire}"\nexec = ["/bin/true"]\n'
    found = parse_manifest((text + 'user = "root"\n' * (level is Level.CRITICAL)).encode(), "a.b.toml").capability
    assert found is not None
    return found


def put(path: Path, text: str | None) -> None:
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(steps=st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=4), level=st.sampled_from(Level))
def test_it_is_what_the_daemon_would_say_after_a_reload(
    tmp_path: Path, steps: list[tuple[str | None, str | None, str | None]], level: Level
) -> None:
    main, users, asked = tmp_path / "main.toml", tmp_path / "d", capability(level)
    users.mkdir(mode=0o755, exist_ok=True)
    held = EnforcedCeiling(main, users, owner=os.getuid())
    for general, by_name, by_uid in steps:
        put(main, general)
        put(users / f"{ME.pw_name}.toml", by_name)
        put(users / "4711.toml", by_uid)
        for uid, name in ((ME.pw_uid, ME.pw_name), (4711, None)):
            policy = load(main, users, owner=os.getuid()).of(uid, name)
            assert held.why_not(asked, uid) == forbidden(asked.id, asked.level, policy)


def test_without_files_nothing_is_forbidden(tmp_path: Path) -> None:
    held = EnforcedCeiling(tmp_path / "main.toml", tmp_path / "d", owner=os.getuid())
    assert held.why_not(capability(Level.CRITICAL), 1000) == ""


@pytest.mark.parametrize("what", ["not root's", "no directory"])
def test_what_cannot_be_believed_leaves_public(tmp_path: Path, what: str) -> None:
    users = tmp_path / "d"
    if what == "no directory":
        users.write_text("")
    else:
        users.mkdir()
        users.chmod(0o777)
    held = EnforcedCeiling(tmp_path / "main.toml", users, owner=os.getuid())
    assert "levels up to public" in held.why_not(capability(Level.LOW), 1000)
    assert held.why_not(capability(Level.PUBLIC), 1000) == ""
