"""Secrets on their way from a person or a file to the daemon: never in an argument, by descriptor over the bus."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.model.jsontext import dump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject

MAX_FILE = 64 * 1024


@contextlib.contextmanager
def descriptor(secret: JsonObject) -> Iterator[int]:
    """A descriptor of memory that holds the secret as JSON (memfd_create(2))."""
    fd = os.memfd_create("aios-secret", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(dump(secret).encode())
        yield fd
    finally:
        os.close(fd)


def from_file(name: str) -> str:
    """What a file holds ('-': stdin), without the newline at its end."""
    if name == "-":
        data = sys.stdin.buffer.read(MAX_FILE + 1)
    else:
        with Path(name).open("rb") as file:
            data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        die(f"{name}: longer than {MAX_FILE} bytes", status=ExitStatus.DATA)
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError:
        die(f"{name}: not UTF-8", status=ExitStatus.DATA)


def asked(session: Session, prompt: str, option: str) -> str:
    """What a person types, unseen; without a terminal that is a wrong usage, and `option` the right one."""
    if not sys.stdin.isatty() or not session.ask_password:
        die(f"{prompt}: there is no terminal to ask on", hint=f"use {option}", status=ExitStatus.USAGE)
    import getpass

    return getpass.getpass(f"{prompt}: ")
