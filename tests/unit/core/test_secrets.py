"""Secrets at rest: what opens them, what does not, and where the key comes from."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.core.secrets import CREDENTIAL, Context, SecretError, Vault, load

if TYPE_CHECKING:
    from pathlib import Path

OWN = Context(1000, "webhook hook-1")
OLD, NEW = b"o" * 32, b"n" * 32


@given(st.binary(max_size=5000))
def test_what_was_sealed_opens_again(secret: bytes) -> None:
    vault = Vault([OLD])
    sealed = vault.seal(OWN, bytearray(secret))
    assert bytes(vault.unseal(OWN, sealed)) == secret
    assert len(secret) < 8 or secret not in sealed


@pytest.mark.parametrize("other", [Context(1001, OWN.purpose), Context(OWN.owner, "webhook hook-2")])
def test_it_opens_only_for_its_owner_and_purpose(other: Context) -> None:
    vault = Vault([OLD])
    with pytest.raises(SecretError, match="somebody else"):
        vault.unseal(other, vault.seal(OWN, bytearray(b"secret")))


@given(st.integers(min_value=0))
def test_a_changed_byte_is_noticed(at: int) -> None:
    vault = Vault([OLD])
    sealed = bytearray(vault.seal(OWN, bytearray(b"secret")))
    sealed[at % len(sealed)] ^= 1
    with pytest.raises(SecretError):
        vault.unseal(OWN, bytes(sealed))


@given(st.binary(max_size=80))
def test_rubbish_does_not_open(sealed: bytes) -> None:
    with pytest.raises(SecretError):
        Vault([OLD]).unseal(OWN, sealed)


def test_a_rotated_key_opens_what_the_old_one_sealed_and_seals_by_itself() -> None:
    sealed = Vault([OLD]).seal(OWN, bytearray(b"secret"))
    rotated = Vault([NEW, OLD])
    assert rotated.unseal(OWN, sealed) == b"secret"
    assert Vault([NEW]).unseal(OWN, rotated.seal(OWN, bytearray(b"secret"))) == b"secret"
    with pytest.raises(SecretError, match="not there any more"):
        Vault([NEW]).unseal(OWN, sealed)


def test_the_first_start_makes_a_key_that_only_the_daemon_can_read(tmp_path: Path) -> None:
    sealed = load(tmp_path).seal(OWN, bytearray(b"secret"))
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert load(tmp_path).unseal(OWN, sealed) == b"secret"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_credential_of_the_system_is_taken_and_no_key_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_by_systemd = tmp_path / "credentials"
    given_by_systemd.mkdir()
    (given_by_systemd / CREDENTIAL).write_bytes(base64.b64encode(NEW) + b"\n" + base64.b64encode(OLD) + b"\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given_by_systemd))
    state = tmp_path / "state"
    state.mkdir()
    assert load(state).unseal(OWN, Vault([OLD]).seal(OWN, bytearray(b"secret"))) == b"secret"
    assert list(state.iterdir()) == []


def test_what_was_sealed_before_there_was_a_credential_still_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load(tmp_path).seal(OWN, bytearray(b"secret"))
    given_by_systemd = tmp_path / "credentials"
    given_by_systemd.mkdir()
    (given_by_systemd / CREDENTIAL).write_bytes(base64.b64encode(NEW) + b"\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given_by_systemd))
    vault = load(tmp_path)
    assert vault.unseal(OWN, before) == b"secret"
    assert Vault([NEW]).unseal(OWN, vault.seal(OWN, bytearray(b"another"))) == b"another"


@pytest.mark.parametrize("text", [b"", b"\n", b"AAAA", b"not base64!", base64.b64encode(b"x" * 31)])
def test_a_key_that_is_none_is_refused_and_kept(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "key").write_bytes(text)
    with pytest.raises(SecretError):
        load(tmp_path)
    assert (tmp_path / "key").read_bytes() == text
