"""The configuration in force, shared by everything in the core; a reload replaces it in one place."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from aiosd.core.stops import Stops
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.config import Config

MAX_DOCUMENT_BYTES = 64 * 1024
"""Largest `arguments`, `metadata` or `input` taken, in bytes of JSON: they travel to the shim in one packet."""

MAX_TOGETHER_BYTES = 120 * 1024
"""Largest `arguments` and `metadata` together: the same packet holds both, and its frame."""


@dataclass(slots=True)
class Settings:
    """Read `current` where a value is needed, every time: a reload then reaches everyone.

    `stops`: emergency stops, which no configuration lifts.
    """

    current: Config
    stops: Stops = field(default_factory=Stops)
