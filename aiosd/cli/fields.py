"""The fields of a question's form, from its JSON schema and its options: what each asks for and what a text means.

A property with listed values (or with the question's options) is a choice, a boolean is confirmed, `format: password`,
`writeOnly` (draft 2020-12) or the question's own `secret` is typed unseen; everything else is a number, a text or JSON,
as its type says. A question without a schema has one field: `choice` where it has options, else `text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from aiosd.cli.arguments import alternatives, array_items, convert, listed, resolve, types
from aiosd.cli.failure import Failure
from aiosd.cli.terminal import one_line
from aiosd.cli.values import list_at, object_at, string_at
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

_YES = frozenset({"y", "yes", "true", "1"})
_NO = frozenset({"n", "no", "false", "0"})


class Kind(Enum):
    """How a field is asked for."""

    CHOICE = "choice"
    CONFIRM = "confirm"
    NUMBER = "number"
    TEXT = "text"
    LIST = "list"
    JSON = "json"
    SECRET = "secret"  # noqa: S105  a kind of field


class Choice(NamedTuple):
    """A value that can be chosen, and how it is shown (clean)."""

    value: JsonValue
    label: str


class Field(NamedTuple):
    """One thing to ask for. `label`: clean. `default` is None where there is none. `spec`: the property's schema."""

    name: str
    kind: Kind
    label: str
    required: bool
    choices: tuple[Choice, ...] = ()
    default: JsonValue = None
    spec: JsonObject = MappingProxyType({})

    @property
    def numbered(self) -> bool:
        """Whether choices can be told by their place: not where they are numbers themselves."""
        return not any(isinstance(choice.value, int | float) for choice in self.choices)


class Wrong(ValueError):
    """What was typed is not a value of the field; `str()` says what is wanted."""


def fields(question: JsonObject) -> list[Field]:
    """The fields in the order in which the schema names them."""
    offered = [_choice(option) for option in list_at(question, "options")]
    schema = resolve(object_at(question, "schema"), object_at(question, "schema"))
    properties = object_at(schema, "properties")
    if not properties:
        name, kind = ("choice", Kind.CHOICE) if offered else ("text", Kind.TEXT)
        kind = Kind.SECRET if question.get("secret") is True else kind
        return [Field(name, kind, name.capitalize(), required=True, choices=tuple(offered))]
    required = list_at(schema, "required")
    specs = {name: resolve(_mapping(spec), schema) for name, spec in properties.items()}
    meant = _for_options(specs) if offered else ""
    hidden = question.get("secret") is True
    return [
        _field(name, spec, schema, offered if name == meant else [], required=name in required, hidden=hidden,
               labels={dump(choice.value): choice.label for choice in offered})
        for name, spec in specs.items()
    ]  # fmt: skip


def _mapping(value: JsonValue) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _choice(option: JsonValue) -> Choice:
    """An option as programs give it: a value, or an object with an id or value and something to show."""
    if not isinstance(option, Mapping):
        return Choice(option, one_line(option if isinstance(option, str) else dump(option)))
    value = next((option[key] for key in ("value", "id", "key") if key in option), dict(option))
    shown = next((string_at(option, key) for key in ("label", "title", "name") if string_at(option, key)), "")
    text = one_line(shown) or one_line(value if isinstance(value, str) else dump(value))
    detail = one_line(string_at(option, "description"))
    return Choice(value, f"{text} - {detail}" if detail else text)


def _for_options(specs: Mapping[str, JsonObject]) -> str:
    """The property that the options are for, when it does not list them itself: the only text without listed values."""
    if any(listed(spec) for spec in specs.values()):
        return ""
    texts = [name for name, spec in specs.items() if types(spec) in ([], ["string"])]
    return texts[0] if len(texts) == 1 else ""


def _field(
    name: str, spec: JsonObject, schema: JsonObject, offered: list[Choice], *, required: bool, hidden: bool,
    labels: Mapping[str, str],
) -> Field:  # fmt: skip
    values = [value for each in alternatives(spec, schema) for value in listed(each)]
    choices = tuple(Choice(value, labels.get(dump(value)) or _spelled(value)) for value in values) or tuple(offered)
    names = {kind for each in alternatives(spec, schema) for kind in types(each)} - {"null"}
    title = one_line(string_at(spec, "title")) or one_line(name)
    about = one_line(string_at(spec, "description"))
    if hidden or spec.get("writeOnly") is True or spec.get("format") == "password":
        kind, choices = Kind.SECRET, ()
    elif choices:
        kind = Kind.CHOICE
    else:
        kind = _KINDS.get(next(iter(names)), Kind.TEXT) if len(names) == 1 else _several(names)
    return Field(
        name, kind, f"{title} ({about})" if about else title, required=required, choices=choices,
        default=spec.get("default"), spec=spec,
    )  # fmt: skip


_KINDS = {
    "boolean": Kind.CONFIRM, "integer": Kind.NUMBER, "number": Kind.NUMBER, "array": Kind.LIST, "object": Kind.JSON,
}  # fmt: skip


def _several(names: set[str]) -> Kind:
    return Kind.NUMBER if names == {"integer", "number"} else Kind.TEXT


def _spelled(value: JsonValue) -> str:
    return one_line(value if isinstance(value, str) else dump(value))


def parsed(field: Field, typed: str, schema: JsonObject) -> JsonValue:
    """The value that a line spells. Raises Wrong. `schema`: the question's, {} when it has none."""
    if field.kind is Kind.CHOICE:
        return _chosen(field, typed)
    if field.kind is Kind.CONFIRM:
        word = typed.strip().lower()
        if word in _YES | _NO:
            return word in _YES
        raise Wrong("y or n")
    try:
        items = array_items(field.spec, schema)
        if items is not None and not typed.lstrip().startswith("["):
            return [convert(field.name, part.strip(), items, schema) for part in typed.split(",")]
        return convert(field.name, typed, field.spec, schema)
    except Failure as failure:
        raise Wrong(failure.what.removeprefix(f"{field.name}: ")) from None


def _chosen(field: Field, typed: str) -> JsonValue:
    word = typed.strip()
    if field.numbered and word.isascii() and word.isdecimal() and 1 <= int(word) <= len(field.choices):
        return field.choices[int(word) - 1].value
    for choice in field.choices:
        if word in (_spelled(choice.value), choice.label):
            return choice.value
    raise Wrong(f"a number from 1 to {len(field.choices)}" if field.numbered else "one of those")
