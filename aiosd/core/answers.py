"""Whether a person's answer is one that the question allows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core.settings import MAX_DOCUMENT_BYTES
from aiosd.errors import AiosError, ErrorKind
from aiosd.manifest import schema
from aiosd.model import jsontext

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject


def check_answer(question: JsonObject, answer: JsonObject) -> None:
    """Raise INVALID_INPUT for an answer that the question's schema, or our bounds, forbid."""
    try:
        jsontext.check_value(answer)
    except jsontext.JsonTextError as error:
        raise AiosError(ErrorKind.INVALID_INPUT, str(error), field="input") from None
    if len(jsontext.dump(answer).encode()) > MAX_DOCUMENT_BYTES:
        raise AiosError(ErrorKind.INVALID_INPUT, f"longer than {MAX_DOCUMENT_BYTES} bytes", field="input")
    asked = question.get("schema")
    if isinstance(asked, dict):
        problems = schema.validate(asked, answer, trusted=False)
        if problems:
            raise AiosError(ErrorKind.INVALID_INPUT, problems[0].message, field=f"input{problems[0].path}")
