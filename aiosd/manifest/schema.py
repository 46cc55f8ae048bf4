"""JSON Schema (draft 2020-12) for arguments, answers and results: checking a schema, and a value against it.

The library is imported on first use: 130 ms and 9 MiB that the launcher, which only needs tables, does not pay, and
the daemon only once it serves (`warm_up`).

What is narrower here than in the standard, because values come from strangers and schemas sometimes do:

* nothing is ever fetched: a reference outside the schema is an error of the schema;
* `format` is an annotation (as the draft has it by default), never a check;
* messages name the place and the rule and never the value, which may be long or secret;
* a schema that root did not install (`trusted=False`: a worker's, a task's question) has neither patterns nor
  references nor `unevaluated*`, and is bounded in size and depth: those are the keywords whose cost can explode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aiosd.manifest.schema_plain import is_plain
from aiosd.manifest.schema_walk import Path, anchored, keywords
from aiosd.manifest.schema_words import sentence
from aiosd.model.jsontext import JsonTextError, canonical, parse_value
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

    from aiosd.model.jsontext import JsonObject, JsonValue

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_PROBLEMS = 16
"""How many findings are reported of one value."""

UNTRUSTED_MAX_BYTES = 16 * 1024
UNTRUSTED_MAX_DEPTH = 16
_UNTRUSTED_REFUSED = frozenset(
    {"pattern", "patternProperties", "$ref", "$dynamicRef", "unevaluatedItems", "unevaluatedProperties"}
)
_ALWAYS_REFUSED = frozenset({"$id", "$vocabulary"})


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """One finding. `path` is a JSON Pointer (RFC 6901) into the value or schema, empty for the whole."""

    path: str
    message: str

    def __str__(self) -> str:
        """Place and sentence."""
        return f"{self.path or '/'}: {self.message}"


def validate(schema: JsonObject, value: JsonValue, *, trusted: bool = True) -> list[SchemaProblem]:
    """What is wrong with `value`; empty when it fits. A schema that cannot be used is a problem of every value.

    `trusted`: the schema comes from a root-owned manifest. Others are bounded, and poorer (see above). The first call
    with a schema checks and compiles it (about 2 ms), later ones find it in a cache.
    """
    try:
        compiled = _compiled(canonical(schema), trusted)
    except (_BadSchema, ValueError, RecursionError) as error:
        return [SchemaProblem("", f"its schema cannot be used: {error}")]
    from referencing.exceptions import Unresolvable

    try:
        found = [_problem(error) for error in islice(compiled.iter_errors(value), MAX_PROBLEMS)]
        return list(dict.fromkeys(found))
    except Unresolvable:
        return [SchemaProblem("", "its schema cannot be used: a reference leads nowhere")]
    except RecursionError:
        return [SchemaProblem("", "its schema cannot be used: a reference leads back to itself")]


def check_schema(schema: JsonObject, *, trusted: bool = True) -> list[SchemaProblem]:
    """What is wrong with the schema itself; empty when it can be used."""
    return [SchemaProblem(_pointer(path), message) for path, message in _findings(schema, trusted=trusted)]


def warm_up() -> None:
    """Import the library, so that the first caller does not wait for it. For a thread."""
    import aiosd.manifest.schema_dialect  # noqa: F401


def check_for_manifest(schema: JsonObject) -> Iterator[tuple[Path, str]]:
    """As `check_schema`, in the shape that `parse.parse_manifest` takes, so it can find the line."""
    return _findings(schema, trusted=True)


class _BadSchema(Exception):
    """The schema itself is at fault."""


@lru_cache(maxsize=512)
def _compiled(text: str, trusted: bool) -> Draft202012Validator:  # noqa: FBT001 - a cache key
    schema = parse_value(text, limit=1 << 20)
    if not isinstance(schema, Mapping):
        raise _BadSchema("it is not an object")
    for path, message in _findings(schema, trusted=trusted):
        raise _BadSchema(f"{_pointer(path)}: {message}")
    from aiosd.manifest.schema_dialect import compile_schema

    return compile_schema(anchored(schema))


def _findings(schema: JsonObject, *, trusted: bool) -> Iterator[tuple[Path, str]]:
    try:
        text = canonical(schema)
        if not trusted and len(text) > UNTRUSTED_MAX_BYTES:
            yield (), f"longer than {UNTRUSTED_MAX_BYTES} bytes"
            return
        own = list(_refused(schema, trusted=trusted))
        parse_value(text, limit=1 << 20)
    except (ValueError, TypeError, RecursionError) as error:
        yield (), str(error) if isinstance(error, JsonTextError) else "not JSON"
        return
    yield from own
    if not own and not is_plain(schema):
        yield from _metaschema(schema)


def _refused(schema: JsonObject, *, trusted: bool) -> Iterator[tuple[Path, str]]:
    """What the draft allows and we do not, and what the draft's own schema does not notice."""
    anchors = {f"#{value}" for _, keyword, value in keywords(schema) if keyword in ("$anchor", "$dynamicAnchor")}
    for path, keyword, value in keywords(schema):
        if not trusted and len(path) > UNTRUSTED_MAX_DEPTH:
            yield path, f"nested deeper than {UNTRUSTED_MAX_DEPTH} levels"
        elif keyword in _ALWAYS_REFUSED or (not trusted and keyword in _UNTRUSTED_REFUSED):
            yield path, "is not allowed here"
        elif keyword == "$schema" and value != DIALECT:
            yield path, f"must be {DIALECT}"
        elif keyword in ("$ref", "$dynamicRef") and not (isinstance(value, str) and value.startswith("#")):
            yield path, 'must stay inside the schema ("#/$defs/…")'
        elif keyword in ("$ref", "$dynamicRef") and value not in anchors and not _leads_somewhere(schema, str(value)):
            yield path, "leads nowhere"
        elif keyword in ("pattern", "patternProperties"):
            yield from ((path, message) for message in _bad_patterns(value))


def _leads_somewhere(schema: JsonObject, reference: str) -> bool:
    found: JsonValue = schema
    for part in unquote(reference[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return False
    return reference == "#" or reference.startswith("#/")


def _bad_patterns(value: JsonValue) -> Iterator[str]:
    """Why a pattern is none for Python's `re`, which is what will run it."""
    patterns = list(value) if isinstance(value, Mapping) else [value]
    for pattern in patterns:
        try:
            re.compile(pattern if isinstance(pattern, str) else "")
        except re.error as error:
            yield f"is not a regular expression: {error.msg}"


def _metaschema(schema: JsonObject) -> Iterator[tuple[Path, str]]:
    from aiosd.manifest.schema_dialect import compile_schema, metaschema_errors

    errors = list(islice(metaschema_errors(schema), MAX_PROBLEMS))
    for error in errors:
        yield tuple(str(part) for part in error.absolute_path), sentence(error)
    if errors:
        return
    probes: tuple[JsonValue, ...] = ({}, [], "", 0, True, None)
    try:
        for probe in probes:
            list(islice(compile_schema(schema).iter_errors(probe), 1))
    except RecursionError:
        yield (), "a reference leads back to itself"


def _problem(error: ValidationError) -> SchemaProblem:
    path = tuple(_shown(str(part)) for part in error.absolute_path)
    return SchemaProblem(_pointer(path), sentence(error))


def _pointer(path: Path) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _shown(part: str) -> str:
    """One member name that a stranger chose, short and printable."""
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in part[:64])
    return text if len(part) <= 64 else text + "…"
