"""A question's fields: what each is, from schema and options, and what is typed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.cli.fields import Field, Kind, Wrong, fields, parsed
from aiosd.cli.terminal import one_line

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

SEED: JsonObject = {
    "prompt": "找到多个商品，请选择要比较的商品",  # noqa: RUF001 - the document's own comma
    "options": [{"id": "product-123", "title": "A"}, {"id": "product-456", "title": "B"}],
    "schema": {
        "type": "object",
        "required": ["selected_product", "confirm_purchase"],
        "properties": {"selected_product": {"type": "string"}, "confirm_purchase": {"type": "boolean"}},
    },
}
"""Seed 000's question: its answer is `{"selected_product": "product-123", "confirm_purchase": true}`."""


def of(**properties: JsonValue) -> JsonObject:
    return {"schema": {"type": "object", "properties": properties}}


def only(question: JsonObject) -> Field:
    (field,) = fields(question)
    return field


def test_the_documents_question_and_answer() -> None:
    product, confirm = fields(SEED)
    assert (product.kind, confirm.kind) == (Kind.CHOICE, Kind.CONFIRM)
    assert [choice.label for choice in product.choices] == ["A", "B"]
    schema = SEED["schema"]
    assert isinstance(schema, dict)
    assert {parsed(product, text, schema) for text in ("1", "A", "product-123")} == {"product-123"}
    assert parsed(confirm, "Yes", schema) is True


@pytest.mark.parametrize(
    ("spec", "kind", "typed", "value"),
    [
        ({"enum": ["a", "b"]}, Kind.CHOICE, "2", "b"),
        ({"enum": [10, 20, 1]}, Kind.CHOICE, "1", 1),
        ({"oneOf": [{"const": "x", "title": "X"}, {"const": None}]}, Kind.CHOICE, "null", None),
        ({"type": "boolean"}, Kind.CONFIRM, "N", False),
        ({"type": "integer"}, Kind.NUMBER, "-3", -3),
        ({"type": ["integer", "number"]}, Kind.NUMBER, "1.5", 1.5),
        ({"type": "string"}, Kind.TEXT, "1", "1"),
        ({"type": "string", "format": "password"}, Kind.SECRET, " x ", " x "),
        ({"type": "integer", "writeOnly": True}, Kind.SECRET, "1234", 1234),
        ({"type": "array", "items": {"type": "integer"}}, Kind.LIST, "1, 2", [1, 2]),
        ({"type": "array", "items": {"type": "string"}}, Kind.LIST, '["a, b"]', ["a, b"]),
        ({"type": "object"}, Kind.JSON, '{"a": 1}', {"a": 1}),
        ({"$ref": "#/$defs/size"}, Kind.NUMBER, "4", 4),
        ({}, Kind.TEXT, "free", "free"),
    ],
)
def test_kinds(spec: JsonObject, kind: Kind, typed: str, value: JsonValue) -> None:
    schema: JsonObject = {"properties": {"价格 of it": spec}, "$defs": {"size": {"type": "integer"}}}
    field = only({"schema": schema})
    assert field.kind is kind
    found = parsed(field, typed, schema)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("spec", "typed"),
    [({"enum": ["a"]}, "2"), ({"type": "boolean"}, "2"), ({"type": "integer"}, "1.5"), ({"type": "object"}, "[1]"),
     ({"type": "array", "items": {"type": "integer"}}, "1,x"), ({"enum": [7, 8]}, "9")],
)  # fmt: skip
def test_what_is_no_value(spec: JsonObject, typed: str) -> None:
    question = of(it=spec)
    with pytest.raises(Wrong):
        parsed(only(question), typed, question["schema"])  # type: ignore[arg-type]  # an object, above


def test_without_a_schema() -> None:
    chosen = only({"options": ["retry", {"value": 3, "name": "three\x1b[2J times"}]})
    assert (chosen.name, [choice.label for choice in chosen.choices]) == ("choice", ["retry", "three times"])
    assert (only({}).name, only({}).kind) == ("text", Kind.TEXT)
    assert only({"secret": True}).kind is Kind.SECRET
    assert {field.kind for field in fields({**SEED, "secret": True})} == {Kind.SECRET}


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT,
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "enum", "const", "anyOf", "items", "$ref", "title", "schema",
                             "options", "required", "default", "id", "label", "a"]), inner, max_size=4),
        max_leaves=20,
    ),
    TEXT,
)  # fmt: skip
def test_no_question_breaks_the_form(question: JsonValue, typed: str) -> None:
    """A question is a program's own: whatever it is, every field can be shown and answered or refused."""
    asked: JsonObject = question if isinstance(question, dict) else {"options": question, "schema": question}
    schema = asked.get("schema")
    for field in fields(asked):
        assert field.label == one_line(field.label)
        assert all(choice.label == one_line(choice.label) for choice in field.choices)
        try:
            parsed(field, typed, schema if isinstance(schema, dict) else {})
        except Wrong as wrong:
            assert str(wrong)
