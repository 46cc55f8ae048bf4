"""polkit: asks whether a subject may do something, and gives every answer a place; no answer is ever a yes.

Asked over D-Bus (`org.freedesktop.PolicyKit1.Authority`, polkit(8)), asynchronously. A question that is given up - the
caller left, the time is over - is cancelled at polkit too, so that no dialog stays on somebody's screen.

polkit takes details, and questions about other users, only from root and from the owner of the action: each action of
polkit/org.aios.TaskManager.policy names the user `aiosd` as its owner.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import unicodedata
from typing import TYPE_CHECKING, Protocol

from aiosd.auth.caller import BusSubject, ProcessSubject
from aiosd.auth.decision import Decision
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.auth.caller import Subject

DECIDE_SECONDS = 25.0
"""Longest wait for an answer when nobody is asked."""
DIALOG_SECONDS = 300.0
"""Longest wait for a person, unless configured."""
CANCEL_SECONDS = 5.0
"""Longest wait for polkit to take a question back."""
MAX_DIALOG_TEXT = 200
"""Characters of a caller's text that a dialog shows."""

_log = logging.getLogger(__name__)


class PolkitBusError(Exception):
    """polkit is absent, refused the question or gave no sensible answer; `str()` says which."""


@dataclass(frozen=True, slots=True)
class SubjectStruct:
    """A subject as polkit takes it, `(sa{sv})`: its kind, each detail with its type. An `h` indexes `fds`."""

    kind: str
    details: Mapping[str, tuple[str, str | int]]
    fds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Arguments of CheckAuthorization. `timeout` in seconds."""

    subject: SubjectStruct
    action_id: str
    details: Mapping[str, str]
    interactive: bool
    cancellation_id: str
    timeout: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """polkit's answer, `(bba{ss})`."""

    is_authorized: bool
    is_challenge: bool
    details: Mapping[str, str]


class PolkitBus(Protocol):
    """The calls that are needed of the bus (bus/authority.py); this package knows no D-Bus library."""

    async def check_authorization(self, question: Question) -> Verdict:
        """Raises PolkitBusError, also when there is no answer within the question's time."""
        ...

    async def cancel_check_authorization(self, cancellation_id: str) -> None:
        """Raises PolkitBusError, also after CANCEL_SECONDS."""
        ...


def encode_subject(subject: Subject) -> SubjectStruct:
    """A caller as polkit names it.

    The pidfd (polkit 124 and newer) cannot come to mean a later process; older ones go by pid and start time.
    """
    if isinstance(subject, BusSubject):
        return SubjectStruct("system-bus-name", {"name": ("s", subject.name)})
    return _process(subject)


def _process(subject: ProcessSubject) -> SubjectStruct:
    details: dict[str, tuple[str, str | int]] = {
        "pid": ("u", subject.pid),
        "start-time": ("t", subject.start_time),
        "uid": ("i", subject.uid - (1 << 32) if subject.uid >= 1 << 31 else subject.uid),
    }
    if subject.pidfd is None:
        return SubjectStruct("unix-process", details)
    return SubjectStruct("unix-process", {**details, "pidfd": ("h", 0)}, (subject.pidfd,))


def dialog_text(text: str, limit: int = MAX_DIALOG_TEXT) -> str:
    """A caller's text, safe in a dialog: one line of at most `limit` characters, nothing invisible in it, and nothing
    that turns the direction of writing round."""
    spaced = "".join(" " if unicodedata.category(sign) in ("Cc", "Zl", "Zp", "Zs") else sign for sign in text)
    shown = "".join(sign for sign in spaced if not unicodedata.category(sign).startswith("C"))
    line = " ".join(shown.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


class PolkitAuthority:
    """polkitd as an `Authority` (auth/decision.py)."""

    def __init__(
        self, bus: PolkitBus, *, decide_seconds: float = DECIDE_SECONDS, dialog_seconds: float = DIALOG_SECONDS
    ) -> None:
        """How long to wait: for polkit itself, and for a person."""
        self._bus = bus
        self._decide_seconds = decide_seconds
        self._dialog_seconds = dialog_seconds
        self._numbers = itertools.count(1)
        self._cancelling: set[asyncio.Task[None]] = set()

    async def check(
        self, subject: Subject, action_id: str, details: Mapping[str, str], *, interactive: bool
    ) -> Decision:
        """Ask. When the asking task is cancelled (its caller left), the question is taken back."""
        question = Question(
            encode_subject(subject),
            action_id,
            {key: dialog_text(value) for key, value in details.items()},
            interactive=interactive,
            cancellation_id=f"aiosd-{os.getpid()}-{next(self._numbers)}",
            timeout=self._dialog_seconds if interactive else self._decide_seconds,
        )
        try:
            async with asyncio.timeout(question.timeout):
                verdict = await self._bus.check_authorization(question)
        except PolkitBusError as error:
            _log.warning("polkit did not decide %s: %s", action_id, error)
            self._take_back(question)
            return Decision.UNAVAILABLE
        except TimeoutError:
            _log.warning("polkit did not decide %s in %g s", action_id, question.timeout)
            self._take_back(question)
            return Decision.UNAVAILABLE
        except asyncio.CancelledError:
            self._take_back(question)
            raise
        return decide(verdict)

    async def close(self) -> None:
        """Wait for the questions that are being taken back."""
        await asyncio.gather(*self._cancelling)

    def _take_back(self, question: Question) -> None:
        """In the background: whoever asked need not wait for it."""
        task = asyncio.create_task(self._cancel(question.cancellation_id))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _cancel(self, cancellation_id: str) -> None:
        try:
            await self._bus.cancel_check_authorization(cancellation_id)
        except PolkitBusError as error:
            _log.info("polkit did not take %s back: %s", cancellation_id, error)


def decide(verdict: Verdict) -> Decision:
    """What an answer means. Only a plain yes allows. Pure."""
    if verdict.is_authorized:
        return Decision.ALLOWED
    if verdict.details.get("polkit.dismissed"):
        return Decision.DISMISSED
    return Decision.CHALLENGE if verdict.is_challenge else Decision.DENIED
