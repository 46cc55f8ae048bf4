"""The shim's side of shared context: files that the daemon hands over before the gate opens, in the scratch directory.

Standard library only. The program finds them in `$AIOS_CONTEXT` when it starts; `context.json` says what they are. They
are written with the program's identity and count as its scratch space. Nothing of the program runs yet, so nothing can
be in the way; a name is one component all the same, and an existing file is not touched.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject

DIRECTORY = ".aios-context"
"""In the scratch directory."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class ContextError(ValueError):
    """A piece that cannot be kept; `str()` says why."""


def keep(directory: str, message: JsonObject) -> None:
    """Write one piece: `{"name", "data": base64, "first": bool}`. Raises ContextError."""
    name, data = message.get("name"), message.get("data")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or not isinstance(data, str):
        raise ContextError("a piece of shared context has no name or no data")
    begin = os.O_CREAT | os.O_EXCL if message.get("first") is True else os.O_APPEND
    try:
        content = base64.b64decode(data, validate=True)
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        fd = os.open(f"{directory}/{name}", os.O_WRONLY | begin | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(content)
    except (OSError, binascii.Error) as error:
        raise ContextError(f"shared context {name} cannot be written: {error}") from None
