"""What counts as plainly a schema: the library finds nothing in it, whatever else is made of it."""

from __future__ import annotations

import random
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiosd.manifest.schema import _metaschema
from aiosd.manifest.schema_plain import MOST_NESTED, is_plain

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonValue

ROOT = Path(__file__).resolve().parents[3]
PACK = sorted((ROOT / "packaging/capabilities.d").glob("*.toml"))

KEYWORDS = [
    "type", "required", "enum", "const", "default", "examples", "title", "description", "$comment", "format", "pattern",
    "minimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxProperties", "uniqueItems",
    "deprecated", "readOnly", "items", "additionalProperties", "properties", "prefixItems", "anyOf", "not", "if",
    "dependentRequired", "contains", "minContains", "$defs", "unknown",
]  # fmt: skip
VALUES: list[JsonValue] = [
    None, True, False, 0, 1, -1, 3, 2.5, -2.5, "", "string", "object", "text", [], ["string"], ["string", "string"],
    ["string", "null"], ["a", "b"], ["a", 1], [1, 1], {}, {"type": "string"}, {"type": "nothing"}, {"a": True},
    {"a": {"type": ["integer"]}}, {"a": 1}, [{}], [True],
]  # fmt: skip


def made(chance: random.Random, depth: int = 0) -> JsonValue:
    """A schema of sorts: half of the time with what the keyword takes, half with anything."""
    schema: dict[str, JsonValue] = {}
    for keyword in chance.sample(KEYWORDS, chance.randint(0, 4)):
        nested = keyword in ("items", "additionalProperties", "properties", "not", "anyOf", "contains") and depth < 3
        if nested and chance.random() < 0.6:
            inner = made(chance, depth + 1)
            schema[keyword] = {"a": inner} if keyword == "properties" else [inner] if keyword == "anyOf" else inner
        else:
            schema[keyword] = chance.choice(VALUES)
    return schema


def test_in_what_is_plain_the_library_finds_nothing() -> None:
    chance, plain = random.Random(20), 0  # noqa: S311  no secret
    for _ in range(4000):
        schema = made(chance)
        assert isinstance(schema, dict)
        if is_plain(schema):
            plain += 1
            assert list(_metaschema(schema)) == [], schema
    assert plain > 400, "the test has to see some"


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_each_keyword_with_each_value(keyword: str) -> None:
    for value in VALUES:
        if is_plain({keyword: value}):
            assert list(_metaschema({keyword: value})) == [], value


@pytest.mark.parametrize("manifest", PACK, ids=lambda path: path.stem)
def test_the_pack_is_plain(manifest: Path) -> None:
    tables = tomllib.loads(manifest.read_text())
    for name in ("input", "result"):
        assert is_plain(tables.get(name, {})), name


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        ({"$defs": {"a": {"type": "string"}}, "properties": {"b": {"$ref": "#/$defs/a"}}}, True),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, False),
        ({"$defs": {"a": {"items": {"$ref": "#"}}}, "$ref": "#/$defs/a"}, False),
        ({"properties": {"b": {"$ref": "#/properties/b"}}}, False),
        ({"$ref": "#/$defs/a/properties/b", "$defs": {"a": {"properties": {"b": True}}}}, False),
    ],
)
def test_references_that_cannot_lead_in_a_circle(schema: JsonValue, *, plain: bool) -> None:
    assert is_plain(schema) is plain


def test_what_is_nested_deep_is_left_to_the_library() -> None:
    schema: JsonValue = {}
    for _ in range(MOST_NESTED):
        schema = {"items": schema}
    assert is_plain(schema)
    assert not is_plain({"items": schema})


def test_the_library_is_not_imported_to_read_the_pack() -> None:
    code = (
        "import sys; from pathlib import Path; from aiosd.manifest.directories import load_one;"
        f"pack = Path({str(PACK[0].parent)!r});"
        "found = [load_one(manifest.stem, (pack,)) for manifest in pack.glob('*.toml')];"
        "assert found and all(found), found; assert 'jsonschema' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
