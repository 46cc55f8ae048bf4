"""Secrets are read in place: what is taken is the flat JSON that a parser takes, and wiping leaves nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.model.secrettext import MAX_SECRET_BYTES, SecretText, SecretTextError

NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@given(st.dictionaries(NAMES, TEXTS, max_size=8), st.sampled_from(["ascii", "utf-8"]), st.sampled_from([None, 1, "\t"]))
def test_what_json_writes_is_taken_and_every_field_found(
    value: dict[str, str], characters: str, indent: int | str | None
) -> None:
    text = json.dumps(value, ensure_ascii=characters == "ascii", indent=indent)
    with SecretText(bytearray(text.encode())) as secret:
        assert secret.names == value.keys()
        for name, wanted in value.items():
            with secret.field(name) as field:
                assert json.loads(b'"' + bytes(field) + b'"', strict=False) == wanted


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner),
    )
)
def test_every_other_json_is_refused(value: object) -> None:
    flat = isinstance(value, dict) and all(isinstance(one, str) and "\0" not in one for one in value.values())
    buffer = bytearray(json.dumps(value).encode())
    if flat:
        SecretText(buffer)
    else:
        with pytest.raises(SecretTextError):
            SecretText(buffer)
        assert not any(buffer)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"{}x", b'{"a":"b"', b'{"a":"b",}', b'{"a" "b"}', b'{"a":"b""c":"d"}', b'{"a":"b","a":"c"}',
     b'{"A":"b"}', b'{"a":"\x01"}', b'{"a":"\xff"}', b'{"a":"\xc0\x80"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\\x"}',
     b'{"a":"\\u0000"}', b'{"a":"\\ud800"}', b'{"a":"\\udc00\\ud800"}', b"[]",
     b'{"a":"' + b"x" * MAX_SECRET_BYTES + b'"}'],
)  # fmt: skip
def test_bad_text_is_refused_and_wiped(text: bytes) -> None:
    buffer = bytearray(text)
    with pytest.raises(SecretTextError) as refused:
        SecretText(buffer)
    assert not any(buffer)
    assert "x" * 10 not in str(refused.value)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_do_anything_but_refuse(text: bytes) -> None:
    try:
        secret = SecretText(bytearray(text))
    except SecretTextError:
        return
    assert isinstance(json.loads(text), dict)
    secret.wipe()


def test_wiping_leaves_nothing() -> None:
    buffer = bytearray(b'{"type":"password","password":"correct horse"}')
    with SecretText(buffer) as secret:
        assert secret.word("type") == "password"
        assert "correct" not in repr(secret)
    assert not any(buffer)
    assert secret.names == frozenset()
