"""docs/protocol.md and rpc.discover are true."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from aiosd.core.operations import OPERATIONS
from aiosd.errors import ErrorKind
from aiosd.rpc.methods import METHODS
from aiosd.rpc.openrpc import document
from aiosd.rpc.reference import updated
from tests.rpc.examples import record

if TYPE_CHECKING:
    from tests.rpc.serving import Json

DOCS = Path(__file__).parents[2] / "docs"
RECORDED: Json = json.loads((DOCS / "protocol.json").read_text("utf-8"))


def test_the_page_is_current() -> None:
    page = (DOCS / "protocol.md").read_text("utf-8")
    assert updated(page, RECORDED) == page
    for operation in OPERATIONS.values():
        if operation.rpc is not None:
            assert f"\n### {operation.rpc}\n" in page


def shape(value: object) -> object:
    """Members and types, without the values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value).__name__


def test_a_run_of_today_answers_as_the_page_says() -> None:
    today = asyncio.run(record())
    assert [call["request"]["method"] for call in today["calls"]] == [
        call["request"]["method"] for call in RECORDED["calls"]
    ]
    for recorded, call in zip(RECORDED["calls"], today["calls"], strict=True):
        assert shape(recorded["request"]) == shape(call["request"])
        assert shape(recorded["answer"]) == shape(call["answer"]), call["request"]["method"]
    kinds = [line for line in RECORDED["stream"].splitlines() if line.startswith("event: ")]
    assert [line for line in today["stream"].splitlines() if line.startswith("event: ")] == kinds


def _name(call: Json) -> str:
    return f"{call['request']['method']} {call['title']}".strip()


@pytest.mark.parametrize("call", RECORDED["calls"], ids=_name)
def test_what_the_page_shows_fits_the_openrpc_document(call: Json) -> None:
    made = json.loads(json.dumps(document()))
    (method,) = [method for method in made["methods"] if method["name"] == call["request"]["method"]]
    params = {param["name"]: param for param in method["params"]}
    for name, value in call["request"]["params"].items():
        schema = {**params[name]["schema"], "components": made["components"]}
        jsonschema.Draft202012Validator(schema).validate(value)
    assert {name for name, param in params.items() if param["required"]} <= call["request"]["params"].keys()


def test_the_openrpc_document_is_complete() -> None:
    made = json.loads(json.dumps(document()))
    assert {method["name"] for method in made["methods"]} == set(METHODS)
    assert {error["data"]["error_id"] for error in made["components"]["errors"].values()} == {
        kind.value.error_id for kind in ErrorKind
    }
    text = json.dumps(made)
    for reference in set(part.split('"')[0] for part in text.split('"$ref": "#/')[1:]):
        found = made
        for step in reference.split("/"):
            found = found[step]
