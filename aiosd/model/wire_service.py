"""The JSON edge, the part about the service itself: drain and emergency (see `wire.py`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from aiosd.model.wire import Line, Wire


class Drain(Wire):
    """`aios/service.drain`: start nothing more, or (`lift`) start tasks again."""

    lift: bool = False


class Emergency(Wire):
    """`aios/emergency.stop`: of the whole machine, or of one user (the caller when no `uid` is given)."""

    scope: Literal["machine", "user"]
    uid: Annotated[int, Field(ge=0, le=(1 << 32) - 2)] | None = None
    reason: Line = ""


class EmergencyLift(Wire):
    """`aios/emergency.lift`: what was stopped with the same scope may work again."""

    scope: Literal["machine", "user"]
    uid: Annotated[int, Field(ge=0, le=(1 << 32) - 2)] | None = None
