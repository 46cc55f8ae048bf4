"""Parameters as they came, made into a model (model/wire.py) or refused with the name of the field that is wrong.

With what it imports it is a third of the daemon's modules, and is imported with the first parameters there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from aiosd.errors import AiosError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosd.model.jsontext import JsonObject
    from aiosd.model.wire import Wire


def parsed(model: type[Wire], given: JsonObject) -> Wire:
    """The parameters. Raises AiosError."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise refusal(error) from None


def field_of(location: Sequence[int | str]) -> str:
    """A pydantic location as people write it: `options.retry.max_attempts`, `depends_on[3]`."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in _UNION_TAGS:
            text += f".{part}" if text else part
    return text


_UNION_TAGS = frozenset({"int", "str", "constrained-int", "constrained-str"})


def refusal(error: ValidationError) -> AiosError:
    """The first thing wrong with the parameters, named by its field; the value itself is not repeated."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    message = first["msg"]
    return AiosError(ErrorKind.INVALID_PARAMS, message[0].lower() + message[1:], field=field_of(first["loc"]))
