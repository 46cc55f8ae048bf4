"""Values against schemas: the right verdict, the right place, no value in a message, no cost that explodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from aiosd.manifest.schema import MAX_PROBLEMS, check_schema, validate

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

SECRET = "hunter2-" + "s" * 5000

PERSON: JsonObject = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 10, "pattern": "^[a-z]+$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "maxItems": 2, "uniqueItems": True, "items": {"type": "string"}},
        "a/b~c": {"type": "null"},
    },
}

VERDICTS: list[tuple[JsonValue, list[tuple[str, str]]]] = [
    ({"name": "rex"}, []),
    ({"name": "rex", "age": 3.0}, []),
    ({}, [("", "lacks 'name'")]),
    ([], [("", "must be an object")]),
    ({"name": 3}, [("/name", "must be a string")]),
    ({"name": "r"}, [("/name", "must have at least 2 characters")]),
    ({"name": "Rex"}, [("/name", "must match the pattern ^[a-z]+$")]),
    ({"name": "rex", "age": True}, [("/age", "must be a whole number")]),
    ({"name": "rex", "age": 3.5}, [("/age", "must be a whole number")]),
    ({"name": "rex", "age": -1}, [("/age", "must be at least 0")]),
    ({"name": "rex", "age": 151}, [("/age", "must be at most 150")]),
    ({"name": "rex", "kind": "cow"}, [("/kind", 'must be one of "cat", "dog"')]),
    ({"name": "rex", "tags": ["a", 1]}, [("/tags/1", "must be a string")]),
    ({"name": "rex", "tags": ["a", "a"]}, [("/tags", "must not have the same element twice")]),
    ({"name": "rex", "tags": ["a", "b", "c"]}, [("/tags", "must have at most 2 elements")]),
    ({"name": "rex", "a/b~c": 1}, [("/a~1b~0c", "must be null")]),
    ({"name": "rex", "nam\x1b": 1}, [("", "does not know 'nam\N{REPLACEMENT CHARACTER}'")]),
]


@pytest.mark.parametrize(("value", "problems"), VERDICTS)
def test_verdict_place_and_words(value: JsonValue, problems: list[tuple[str, str]]) -> None:
    assert [(problem.path, problem.message) for problem in validate(PERSON, value)] == problems


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"}, {"const": "x"}, {"enum": ["x"]}, {"pattern": "^x$"}, {"maxLength": 1}, {"not": {}},
        {"anyOf": [{"type": "null"}]}, {"oneOf": [{"type": "null"}]}, {"allOf": [{"type": "null"}]},
        {"if": {}, "then": {"type": "null"}}, {"$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}},
    ],
)  # fmt: skip
def test_no_message_holds_the_value(schema: JsonObject) -> None:
    problems = validate(schema, SECRET)
    assert problems
    for problem in problems:
        assert "hunter2" not in str(problem)
        assert len(str(problem)) < 400


def test_member_names_of_strangers_are_cut() -> None:
    (problem,) = validate({"type": "object", "additionalProperties": {"type": "null"}}, {"x" * 5000: 1})
    assert len(problem.path) < 80
    (problem,) = validate({"additionalProperties": False}, {"y" * 5000: 1})
    assert len(problem.message) < 300


def test_findings_are_bounded() -> None:
    problems = validate({"items": {"type": "string"}}, list(range(10_000)))
    assert len(problems) == MAX_PROBLEMS


def test_unique_items_is_linear_and_knows_json_equality() -> None:
    schema: JsonObject = {"uniqueItems": True}
    assert validate(schema, [1, 1.0])
    assert validate(schema, [{"a": [1, 2.0]}, {"a": [1.0, 2]}])
    assert not validate(schema, [1, True, "1", None, [], {}, 0, False, ""])
    mixed: list[JsonValue] = [item for n in range(15_000) for item in (n, str(n), {"n": n})]
    began = time.process_time()
    assert not validate(schema, mixed)
    # Each with each would be a billion comparisons: minutes. By a set: well under a second.
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "abc\n", False),
        ("^(a|b$)", "b\n", False),
        (r"^\$[$]$", "$$", True),
        (r"^[\]$]+$", "]$", True),
        (r"\\$", "x\\", True),
        ("b", "abc", True),
    ],
)
def test_a_dollar_is_the_very_end(pattern: str, text: str, fits: bool) -> None:  # noqa: FBT001 - a row of the table
    assert (validate({"pattern": pattern}, text) == []) is fits
    named: JsonObject = {"patternProperties": {pattern: {}}, "additionalProperties": False}
    assert (validate(named, {text: 1}) == []) is fits


def test_formats_are_annotations() -> None:
    assert not validate({"format": "ipv4"}, "not an address")


BAD_SCHEMAS: list[tuple[JsonObject, str]] = [
    ({"type": "strin"}, "/type"),
    ({"required": "x"}, "/required"),
    ({"properties": {"x": {"minimum": "1"}}}, "/properties/x/minimum"),
    ({"$ref": "https://example.org/schema"}, "/$ref"),
    ({"$ref": "file:///etc/passwd"}, "/$ref"),
    ({"$ref": "other.json"}, "/$ref"),
    ({"$ref": "#/$defs/missing"}, "/$ref"),
    ({"$ref": "#nothing"}, "/$ref"),
    ({"$ref": "#"}, ""),
    ({"$id": "https://example.org/x"}, "/$id"),
    ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema"),
    ({"pattern": "("}, "/pattern"),
    ({"patternProperties": {"[": {}}}, "/patternProperties"),
]


@pytest.mark.parametrize(("schema", "path"), BAD_SCHEMAS)
def test_bad_schemas_are_found(schema: JsonObject, path: str) -> None:
    assert path in [problem.path for problem in check_schema(schema)]
    (problem,) = validate(schema, {"x": 1})
    assert "its schema cannot be used" in problem.message


@pytest.mark.parametrize(
    "schema",
    [
        PERSON,
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}, "$id": {}}},
        {"const": {"$ref": "https://example.org", "$id": "x"}},
        {"$defs": {"a b/c": {"$anchor": "here"}}, "anyOf": [{"$ref": "#/$defs/a%20b~1c"}, {"$ref": "#here"}]},
        {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"},
    ],
)
def test_good_schemas_are_taken(schema: JsonObject) -> None:
    assert check_schema(schema) == []
    assert validate(schema, {"next": {"next": {}}}) is not None


def test_a_reference_is_never_fetched() -> None:
    (problem,) = validate({"$ref": "http://127.0.0.1:9/x"}, {})
    assert "must stay inside the schema" in problem.message


def test_a_circle_ends() -> None:
    (problem,) = validate({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {})
    assert "back to itself" in problem.message


def deep(levels: int) -> JsonObject:
    schema: JsonObject = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^(a+)+$"},
        {"properties": {"x": {"patternProperties": {"(a+)+$": {}}}}},
        {"$ref": "#/$defs/x", "$defs": {"x": {}}},
        {"unevaluatedProperties": False},
        {"items": {"unevaluatedItems": False}},
        {"description": "x" * 20_000},
        deep(40),
        {"type": "strin"},
    ],
)
def test_what_root_did_not_install_is_bounded(schema: JsonObject) -> None:
    assert check_schema(schema, trusted=False)
    (problem,) = validate(schema, "a" * 40 + "!", trusted=False)
    assert "its schema cannot be used" in problem.message


def test_an_ordinary_question_of_a_task_is_taken() -> None:
    schema: JsonObject = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}
    assert check_schema(schema, trusted=False) == []
    assert validate(schema, {"answer": "yes"}, trusted=False) == []
    assert validate(schema, {"answer": "perhaps"}, trusted=False)[0].path == "/answer"
