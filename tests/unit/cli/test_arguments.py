"""key=value: the table of types, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aiosd.cli.arguments import from_json, from_words, needs_schema
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import Failure

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

SCHEMA: JsonObject = {
    "$defs": {"size": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"$ref": "#/$defs/size"}},
        "things": {"type": "array"},
        "where": {"type": "object"},
        "nothing": {"type": "null"},
        "maybe": {"type": ["integer", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
        "mode": {"enum": ["fast", 2, True]},
        "level": {"type": "integer", "enum": [1, 2]},
        "fixed": {"const": 7},
        "size": {"$ref": "#/$defs/size"},
        "loop": {"$ref": "#/$defs/loop"},
        "outside": {"$ref": "https://example.org/schema"},
        "a.b-c": {"type": "string"},
    },
    "additionalProperties": {"type": "boolean"},
}


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["text=12"], {"text": "12"}),
        (["text="], {"text": ""}),
        (["text=a=b"], {"text": "a=b"}),
        (["text=:=x"], {"text": ":=x"}),
        (["text=two\nlines"], {"text": "two\nlines"}),
        (["count=-3"], {"count": -3}),
        (["ratio=0.5"], {"ratio": 0.5}),
        (["ratio=2"], {"ratio": 2}),
        (["flag=true"], {"flag": True}),
        (["flag=No"], {"flag": False}),
        (["flag=1"], {"flag": True}),
        (["names=a"], {"names": ["a"]}),
        (["names=a", "text=x", "names=2"], {"names": ["a", "2"], "text": "x"}),
        (["names:=[]"], {"names": []}),
        (["sizes=1", "sizes=2"], {"sizes": [1, 2]}),
        (["things=1"], {"things": ["1"]}),
        (['where={"a": [1, null]}'], {"where": {"a": [1, None]}}),
        (["nothing=null"], {"nothing": None}),
        (["maybe=null"], {"maybe": None}),
        (["maybe=4"], {"maybe": 4}),
        (["either=yes"], {"either": True}),
        (["either=maybe"], {"either": "maybe"}),
        (["mode=fast"], {"mode": "fast"}),
        (["mode=2"], {"mode": 2}),
        (["mode=true"], {"mode": True}),
        (["mode=other"], {"mode": "other"}),
        (["level=2"], {"level": 2}),
        (["level=9"], {"level": 9}),
        (["fixed=7"], {"fixed": 7}),
        (["size=5"], {"size": 5}),
        (["loop=x"], {"loop": "x"}),
        (["outside=x"], {"outside": "x"}),
        (["a.b-c=x"], {"a.b-c": "x"}),
        (["other=off"], {"other": False}),
        (["count:=3"], {"count": 3}),
        (['text:="12"'], {"text": "12"}),
    ],
)
def test_types(words: list[str], value: dict[str, JsonValue]) -> None:
    found = from_words(words, SCHEMA)
    assert found == value
    assert {key: type(each) for key, each in found.items()} == {key: type(each) for key, each in value.items()}


@pytest.mark.parametrize(
    ("words", "says", "status"),
    [
        (["text"], "'text' is not key=value", ExitStatus.USAGE),
        (["=x"], "'=x' is not key=value", ExitStatus.USAGE),
        (["text=a", "text=b"], "text is given twice", ExitStatus.USAGE),
        (["names=a", 'names:=["b"]'], "names is given both as names= and as names:=", ExitStatus.USAGE),
        (["count=x"], "count: 'x' is not an integer", ExitStatus.USAGE),
        (["count=1.5"], "count: '1.5' is not an integer", ExitStatus.USAGE),
        (["count=true"], "count: 'true' is not an integer", ExitStatus.USAGE),
        (["count="], "count: '' is not an integer", ExitStatus.USAGE),
        (["count=123456789012345678901"], "count: '123456789012345678901' is not an integer", ExitStatus.USAGE),
        (["ratio=NaN"], "ratio: 'NaN' is not a number", ExitStatus.USAGE),
        (["flag=maybe"], "flag: 'maybe' is not a boolean (true or false)", ExitStatus.USAGE),
        (["where=[]"], "where: '[]' is not a JSON object", ExitStatus.USAGE),
        (["maybe=x"], "maybe: 'x' is not any of null, integer", ExitStatus.USAGE),
        (["sizes=1", "sizes=x"], "sizes: 'x' is not an integer", ExitStatus.USAGE),
        (["count:=x"], "count: not JSON: Expecting value at character 0", ExitStatus.DATA),
    ],
)
def test_refused(words: list[str], says: str, status: ExitStatus) -> None:
    with pytest.raises(Failure) as caught:
        from_words(words, SCHEMA)
    assert (caught.value.what, caught.value.status) == (says, status)


def test_without_a_schema_everything_is_text() -> None:
    assert from_words(["a=1", "b:=1"], {}) == {"a": "1", "b": 1}


def test_raw_words_need_no_schema() -> None:
    assert not needs_schema(["a:=1", "junk"])
    assert needs_schema(["a:=1", "b=2"])


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": 1, "a": 2}', b'{"a": "\xff"}'])
def test_json_that_is_no_object(text: str | bytes) -> None:
    with pytest.raises(Failure) as caught:
        from_json(text, "--arguments")
    assert caught.value.status == ExitStatus.DATA
