"""A polkit authentication agent whose dialogs a test answers: real PAM, no person.

It registers for its own process, shows each dialog as a line `{"dialog": {…}}`, and gives the helper of polkit, which
is what asks PAM, the password that the test chose. polkit(8), "AUTHENTICATION AGENTS".
"""

from __future__ import annotations

import asyncio
import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.bus.connection import Call, SystemBus, Variant

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.bus.connection import MethodCall
    from aiosd.bus.message import BusValue
    from aiosd.model.jsontext import JsonObject, JsonValue

POLKIT = "org.freedesktop.PolicyKit1"
AUTHORITY_PATH = "/org/freedesktop/PolicyKit1/Authority"
AGENT_PATH = "/org/aios/test/Agent"
HELPER = "/usr/lib/polkit-1/polkit-agent-helper-1"


def start_time() -> int:
    """When this process began, as polkit tells processes apart (field 22 of proc_pid_stat(5))."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


@dataclass(frozen=True)
class Dialog:
    """What polkit wants to have asked."""

    call: MethodCall
    cookie: str
    user: str


class Agent:
    """Serves polkitd on the client's own connection. `tell`: takes a line for the test."""

    def __init__(self, bus: SystemBus, tell: Callable[[JsonObject], None]) -> None:
        """`register` it."""
        self._bus = bus
        self._tell = tell
        self._open: dict[str, Dialog] = {}

    async def register(self) -> None:
        """Become the agent of this process."""
        pid, start = os.getpid(), start_time()
        process: dict[str, BusValue] = {
            "pid": Variant("u", pid), "start-time": Variant("t", start), "uid": Variant("i", os.getuid())
        }  # fmt: skip
        self._bus.serve(self._serve)
        body: tuple[BusValue, ...] = (("unix-process", process), "C", AGENT_PATH)
        register = "RegisterAuthenticationAgent"
        await self._bus.call(Call(POLKIT, AUTHORITY_PATH, f"{POLKIT}.Authority", register, "(sa{sv})ss", body))

    def _serve(self, call: MethodCall) -> None:
        if call.member == "CancelAuthentication":
            self._tell({"dialog_canceled": str(call.body[0])})
            self._bus.send_reply(call)
            return
        action, text, _icon, _details, cookie, identities = call.body
        assert isinstance(identities, list)
        uids = [identity[1]["uid"].value for identity in identities]
        asked: list[JsonValue] = [pwd.getpwuid(uid).pw_name for uid in uids]
        self._open[str(cookie)] = Dialog(call, str(cookie), str(asked[0]))
        self._tell({
            "dialog": {
                "action": str(action), "text": str(text), "cookie": str(cookie), "asked": asked
            }
        })  # fmt: skip

    async def answer(self, cookie: str, password: str | None) -> None:
        """Close a dialog: with the password of the first of those asked, or dismissed with None."""
        dialog = self._open.pop(cookie)
        if password is None:
            self._bus.send_error(dialog.call, f"{POLKIT}.Error.Cancelled", "dismissed")
            return
        helper = await asyncio.create_subprocess_exec(
            HELPER, dialog.user, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert helper.stdin is not None
        assert helper.stdout is not None
        helper.stdin.write(dialog.cookie.encode() + b"\n")
        while line := (await helper.stdout.readline()).decode().strip():
            if line.startswith("PAM_PROMPT"):
                helper.stdin.write(password.encode() + b"\n")
            elif line in ("SUCCESS", "FAILURE"):
                break
        helper.stdin.close()
        await helper.wait()
        self._bus.send_reply(dialog.call)
