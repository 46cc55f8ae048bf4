"""`aiosctl auth`: give a task what it needs to authenticate."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from aiosd.cli import options, secret
from aiosd.cli.exit_status import ExitStatus
from aiosd.cli.failure import die
from aiosd.cli.ids import resolve
from aiosd.cli.terminal import one_line
from aiosd.cli.values import integer_at, object_at, string_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.cli.session import Session
    from aiosd.model.jsontext import JsonObject


@click.command
@click.argument("task", type=options.TaskId())
@click.option("--username", metavar="NAME", help="password: the user's name; asked for when not given.")
@click.option(
    "--secret-file", metavar="FILE", help="api_key, password: where it is; '-' reads stdin. Asked for when not given."
)
@click.option("--certificate", metavar="FILE", help="certificate: the certificate, PEM.")
@click.option("--private-key", metavar="FILE", help="certificate: its private key, PEM.")
@click.option("--no-browser", is_flag=True, help="oauth2: print the address and do not open it.")
@options.common
@options.pass_session
def command(
    session: Session, *, task: str, username: str | None, secret_file: str | None, certificate: str | None,
    private_key: str | None, no_browser: bool,
) -> None:  # fmt: skip
    """Authenticate for a task that waits for it. What you give goes to that task's program and nowhere else.

    With oauth2 a browser is sent to the provider, and comes back to aiosctl on this machine; elsewhere, forward the
    port that is printed.
    """
    files = {"secret": secret_file, "certificate": certificate, "private_key": private_key}
    session.run(_auth(session, task, username, files, browser=not no_browser))


async def _auth(
    session: Session, word: str, username: str | None, files: Mapping[str, str | None], *, browser: bool
) -> None:
    async with session.connect() as client:
        task_id = await resolve(client, word)
        request = object_at(await client.get(task_id), "auth_request")
        kind = string_at(request, "type")
        _introduce(session, request)
        if kind == "oauth2":
            given = await _oauth2(session, request, browser=browser)
        elif kind in ("api_key", "password"):
            given = _typed(session, kind, username, files["secret"])
        elif kind == "certificate":
            given = _certificate(files)
        elif kind == "polkit":
            given = {}  # the system asks
        elif kind == "approval":
            die(
                "The task waits for an approval",
                hint=f"'aiosctl approve {one_line(string_at(request, 'approval_id'))}' gives it",
                status=ExitStatus.DATA,
            )
        else:
            die(
                "The task does not wait for an authentication",
                hint=f"'aiosctl show {task_id}' shows it",
                status=ExitStatus.DATA,
            )
        with secret.descriptor({"type": kind, **given}) as fd:
            await client.authenticate(task_id, fd)
    if session.json:
        session.emit({"task_id": task_id})
    session.note(f"{task_id} authenticated")


def _introduce(session: Session, request: JsonObject) -> None:
    """Say who wants what before anything is typed."""
    provider, reason = one_line(string_at(request, "provider")), one_line(string_at(request, "reason"))
    if provider or reason:
        session.note(": ".join(text for text in (provider, reason) if text))


def _typed(session: Session, kind: str, username: str | None, file: str | None) -> dict[str, str]:
    if kind == "api_key":
        return {"api_key": secret.from_file(file) if file else secret.asked(session, "API key", "--secret-file")}
    name = username or click.prompt("User name", err=True)
    return {
        "username": name,
        "password": secret.from_file(file) if file else secret.asked(session, "Password", "--secret-file"),
    }


def _certificate(files: Mapping[str, str | None]) -> dict[str, str]:
    certificate, key = files["certificate"], files["private_key"]
    if not certificate:
        die("The task asks for a certificate", hint="use --certificate and --private-key", status=ExitStatus.USAGE)
    found = {"certificate": secret.from_file(certificate)}
    return {**found, "private_key": secret.from_file(key)} if key else found


async def _oauth2(session: Session, request: JsonObject, *, browser: bool) -> dict[str, str]:
    from aiosd.cli.loopback import authorization, listening

    async with listening() as listener:
        wanted = authorization(request, listener.redirect_uri)
        listener.state = wanted.state
        session.err.write(f"Open this address in a browser:\n\n  {one_line(wanted.url)}\n\n")
        session.err.flush()
        if browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            import webbrowser

            await asyncio.to_thread(webbrowser.open, wanted.url)
        limit = integer_at(request, "timeout_ms")
        answer = await listener.answer(None if limit is None else limit / 1000)
    if answer.error:
        die(f"The provider refused: {one_line(answer.error)[:200]}", status=ExitStatus.DENIED)
    return {"authorization_code": answer.code, "state": wanted.state, "redirect_uri": wanted.redirect_uri}
