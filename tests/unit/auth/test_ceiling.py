"""The administrator's files: what they say, that a user's can only tighten, and that what is wrong fails closed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.auth.ceiling import STRICTEST, Policy, load, parse, tighten
from aiosd.model.status import Level

if TYPE_CHECKING:
    from pathlib import Path

FULL = b"""\
max_permission_level = "high"
always_deny = ["system.power.*"]
auto_grant = ["system.info.read"]
require_audit = ["system.*"]
root_command_without_approval = true
"""
IDS = ["system.info.read", "system.power.reboot", "files.checksum"]

globs = st.lists(st.sampled_from(["*", "system.*", "system.info.read", "files.*", "net.?"]), max_size=3).map(tuple)
policies = st.builds(
    Policy,
    max_level=st.sampled_from(Level),
    always_deny=globs,
    auto_grant=st.none() | globs,
    require_audit=globs,
    root_command_without_approval=st.booleans(),
)


def test_all_keys_are_read() -> None:
    policy, problems = parse(FULL, "policy.toml")
    assert problems == ()
    assert policy == Policy(
        Level.HIGH, ("system.power.*",), ("system.info.read",), ("system.*",), True, source="policy.toml"
    )
    assert policy.denies("system.power.reboot") == "system.power.*"
    assert policy.grants("system.info.read") == "system.info.read"
    assert policy.audits("system.info.read")
    assert not policy.audits("files.checksum")


@given(general=policies, own=policies)
def test_a_user_s_file_only_tightens(general: Policy, own: Policy) -> None:
    both = tighten(general, own)
    assert both.max_level <= general.max_level
    for name in IDS:
        assert general.denies(name) is None or both.denies(name) is not None
        assert both.grants(name) is None or general.grants(name) is not None
        assert both.grants(name) is None or own.auto_grant is None or own.grants(name) is not None
        assert not general.audits(name) or both.audits(name)
    assert both.root_command_without_approval == general.root_command_without_approval


def test_a_user_s_empty_list_grants_nothing_and_no_list_changes_nothing() -> None:
    general = Policy(auto_grant=("system.*",))
    assert tighten(general, Policy(auto_grant=())).grants("system.info.read") is None
    assert tighten(general, Policy()).grants("system.info.read") == "system.*"
    assert tighten(general, Policy(auto_grant=("*.read",))).grants("system.info.read") is not None
    assert tighten(general, Policy(auto_grant=("*.read",))).grants("system.disk.usage") is None


@pytest.mark.parametrize(
    ("text", "line", "key", "instead"),
    [
        (b'\nmax_permission_level = "hihg"\n', 2, "max_permission_level", Policy(max_level=Level.PUBLIC)),
        (b"max_permission_level = 3\n", 1, "max_permission_level", Policy(max_level=Level.PUBLIC)),
        (b'always_deny = "system.*"\n', 1, "always_deny", Policy(always_deny=("*",))),
        (b'always_deny = ["System Power"]\n', 1, "always_deny", Policy(always_deny=("*",))),
        (b"auto_grant = [1]\n", 1, "auto_grant", Policy(auto_grant=())),
        (b"require_audit = 1\n", 1, "require_audit", Policy(require_audit=("*",))),
        (b'root_command_without_approval = "yes"\n', 1, "root_command_without_approval", Policy()),
    ],
)
def test_a_wrong_value_is_the_strictest_of_its_key(text: bytes, line: int, key: str, instead: Policy) -> None:
    policy, (problem,) = parse(text, "p")
    assert policy == Policy(
        **{name: getattr(instead, name) for name in instead.__slots__ if name != "source"}, source="p"
    )
    assert (problem.file, problem.line, problem.key) == ("p", line, key)


@pytest.mark.parametrize(
    "text",
    [
        b"max_permission_level",
        b"\xff\xfe",
        b"a = " + b"[" * 70_000,
        b'alway_deny = ["system.*"]',
        b'max_permission_level = "high"\nmax_permission_level = "high"',
    ],
)
def test_a_file_of_which_nothing_can_be_believed_leaves_public(text: bytes) -> None:
    policy, problems = parse(text, "p")
    assert problems
    assert policy.max_level is Level.PUBLIC
    assert policy.grants("system.info.read") is None


def test_a_misspelled_key_does_not_undo_the_others() -> None:
    policy, _ = parse(b'always_deny = ["system.*"]\nauto_grent = []\n', "p")
    assert policy.denies("system.info.read")
    assert policy.max_level is Level.PUBLIC


def test_the_switch_for_root_has_no_place_in_a_user_s_file() -> None:
    policy, (problem,) = parse(b"root_command_without_approval = true\n", "p", personal=True)
    assert policy.max_level is Level.PUBLIC
    assert not policy.root_command_without_approval
    assert "no place" in problem.message


def test_files_are_found_by_name_and_by_uid(tmp_path: Path) -> None:
    users = tmp_path / "d"
    users.mkdir(mode=0o755)
    (tmp_path / "main.toml").write_bytes(b'max_permission_level = "high"\n')
    (users / "alice.toml").write_bytes(b'max_permission_level = "medium"\n')
    (users / "1001.toml").write_bytes(b'max_permission_level = "low"\n')
    found = load(tmp_path / "main.toml", users, owner=os.getuid())
    assert found.problems == ()
    assert found.of(1000, "alice").max_level is Level.MEDIUM
    assert found.of(1001, "bob").max_level is Level.LOW
    assert found.of(1001, "alice").max_level is Level.LOW
    assert found.of(1002, None).max_level is Level.HIGH


def test_no_files_are_no_ceiling(tmp_path: Path) -> None:
    found = load(tmp_path / "none.toml", tmp_path / "none.d", owner=os.getuid())
    assert found.of(1000, "alice") == Policy()
    assert found.problems == ()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "main.toml"
    file.write_bytes(b'auto_grant = ["*"]\n')
    file.chmod(mode)
    found = load(file, tmp_path / "none", owner=os.getuid())
    assert found.general == STRICTEST
    assert "only root can write" in found.problems[0].message


def test_a_link_and_another_owner_are_not_believed(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_bytes(b"")
    (tmp_path / "main.toml").symlink_to(tmp_path / "real.toml")
    assert load(tmp_path / "main.toml", tmp_path / "none", owner=os.getuid()).general == STRICTEST
    assert load(tmp_path / "real.toml", tmp_path / "none", owner=os.getuid() + 1).general == STRICTEST


def test_a_folder_that_others_can_write_counts_for_everybody(tmp_path: Path) -> None:
    users = tmp_path / "d"
    users.mkdir()
    users.chmod(0o777)
    found = load(tmp_path / "none", users, owner=os.getuid())
    assert found.of(1000, None).max_level is Level.PUBLIC
