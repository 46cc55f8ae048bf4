"""JSON from strangers: what is taken, what is refused, and that it comes back as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.model.jsontext import (
    MAX_DEPTH,
    MAX_INTEGER,
    MAX_TEXT_BYTES,
    JsonTextError,
    JsonValue,
    Settled,
    canonical,
    check_value,
    dump,
    parse_object,
    parse_value,
)

HOSTILE: list[tuple[str, str | bytes, str]] = [
    ("nothing", "", "not JSON"),
    ("blanks", "  ", "not JSON"),
    ("not a number", "NaN", "not a JSON number"),
    ("infinity", '{"a": Infinity}', "not a JSON number"),
    ("minus infinity", "[-Infinity]", "not a JSON number"),
    ("float overflow", "1e999", "too large"),
    ("negative float overflow", "-1e999", "too large"),
    ("2^53", "9007199254740992", "too large"),
    ("-2^53", "-9007199254740992", "too large"),
    ("digits that take square time", "9" * 100_000, "too large"),
    ("the same key twice", '{"a": 1, "a": 2}', "same key twice"),
    ("the same key twice, one escaped", '{"a": 1, "\\u0061": 2}', "same key twice"),
    ("the same key twice, deep", '[{"x": {"a": 1, "a": 1}}]', "same key twice"),
    ("lone high surrogate", '"\\ud800"', "surrogate"),
    ("lone low surrogate", '{"\\udc00": 1}', "surrogate"),
    ("surrogates the wrong way round", '"\\udc00\\ud800"', "surrogate"),
    ("NUL in a string", '"a\\u0000b"', "NUL"),
    ("NUL in a key", '{"\\u0000": 1}', "NUL"),
    ("raw control character", '"a\nb"', "not JSON"),
    ("raw NUL", '"\0"', "not JSON"),
    ("one array too deep", "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "nested deeper"),
    ("arrays without end", "[" * 100_000, "nested deeper"),
    ("deeper than that by far, and cut off", "[" * 2_000 + "}", "nested deeper"),
    ("deep behind a string", '["\\\\\\"' + "]" * 99 + '",' + "[" * 99 + "]" * 99 + "]", "nested deeper"),
    ("objects without end", '{"a":' * 50_000, "nested deeper"),
    ("a comma too many", "[1,]", "not JSON"),
    ("single quotes", "{'a': 1}", "not JSON"),
    ("a comment", "{} // no", "not JSON"),
    ("two values", "{}{}", "not JSON"),
    ("leading zero", "01", "not JSON"),
    ("hexadecimal", "0x10", "not JSON"),
    ("a plus", "+1", "not JSON"),
    ("bare word", "undefined", "not JSON"),
    ("Python's own words", "True", "not JSON"),
    ("overlong UTF-8", b'"\xc0\xaf"', "not UTF-8"),
    ("a surrogate as UTF-8", b'"\xed\xa0\x80"', "not UTF-8"),
    ("cut off UTF-8", b'"\xe2\x82', "not UTF-8"),
    ("UTF-16", '{"a": 1}'.encode("utf-16"), "not UTF-8"),
    ("a byte order mark", b"\xef\xbb\xbf{}", "not JSON"),
    ("a byte too long", '"' + "a" * (MAX_TEXT_BYTES - 1) + '"', "longer than"),
    ("bytes count, not characters", '"' + "\u20ac" * (MAX_TEXT_BYTES // 3) + '"', "longer than"),
]


@pytest.mark.parametrize(("text", "why"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_hostile_text_is_refused_with_a_reason(text: str | bytes, why: str) -> None:
    with pytest.raises(JsonTextError, match=why) as refused:
        parse_value(text)
    assert len(str(refused.value)) < 120, "the text itself must not come back in the message"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740991", MAX_INTEGER),
        ("-9007199254740991", -MAX_INTEGER),
        ("1e3", 1000.0),
        ("-0", 0),
        ("null", None),
        (" [true, false] ", [True, False]),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('{"耳机": "€"}'.encode(), {"耳机": "€"}),
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, None),
        ('"' + "a" * (MAX_TEXT_BYTES - 2) + '"', "a" * (MAX_TEXT_BYTES - 2)),
    ],
)
def test_what_is_taken(text: str | bytes, value: JsonValue) -> None:
    parsed = parse_value(text)
    if value is not None or text == "null":
        assert parsed == value


@pytest.mark.parametrize("text", ["[]", "1", '"{}"', "null", "true"])
def test_an_object_is_wanted(text: str) -> None:
    with pytest.raises(JsonTextError, match="must be a JSON object"):
        parse_object(text)


def test_empty_text_is_the_empty_object() -> None:
    assert parse_object("") == {}
    assert parse_object(b"") == {}


@pytest.mark.parametrize("value", [2**53, -(2**53), float("inf"), float("nan"), "\ud800", "\0", {"\0": 1}, [["\0"]]])
def test_values_of_our_own_making_are_checked_alike(value: JsonValue) -> None:
    with pytest.raises(JsonTextError):
        check_value(value)


def _texts() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def _values() -> st.SearchStrategy[JsonValue]:
    leaves: st.SearchStrategy[JsonValue] = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-MAX_INTEGER, MAX_INTEGER),
        st.floats(allow_nan=False, allow_infinity=False),
        _texts(),
    )
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(_texts(), inner), max_leaves=20)


@given(_values())
def test_what_is_written_is_read_back(value: JsonValue) -> None:
    assert parse_value(dump(value)) == value
    assert parse_value(canonical(value)) == value


@given(st.dictionaries(_texts(), _values(), max_size=8))
def test_the_canonical_text_does_not_depend_on_the_order_of_keys(value: dict[str, JsonValue]) -> None:
    turned = dict(reversed(list(value.items())))
    assert canonical(turned) == canonical(value)
    assert canonical(value).isascii()


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_parsed_or_refused_and_what_is_parsed_is_sound(text: str | bytes) -> None:
    try:
        value = parse_value(text)
    except JsonTextError:
        return
    check_value(value)
    json.dumps(value, allow_nan=False).encode()


def test_a_settled_object_has_one_text() -> None:
    value = Settled({"a": [1, "ü"], "b": None})
    assert dump(value) == dump(dict(value)) == '{"a":[1,"ü"],"b":null}'
    assert dump(value) is value.text
    assert dump({"inner": value}) == '{"inner":{"a":[1,"ü"],"b":null}}'
