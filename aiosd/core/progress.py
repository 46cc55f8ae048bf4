"""What a program may say of its progress, cleaned: numbers in range, texts short and without control characters.
Pure."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue

MAX_TEXT = 1000
"""Longest message kept, in characters."""

_FORBIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def clean_text(value: JsonValue, limit: int = MAX_TEXT) -> str | None:
    """A line for people out of what a program sent; None when it sent no text."""
    if not isinstance(value, str):
        return None
    spaced = value.replace("\n", " ").replace("\t", " ")
    return "".join(char for char in spaced if unicodedata.category(char) not in _FORBIDDEN)[:limit]


def _number(value: JsonValue, low: float, high: float) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    kept = min(max(value, low), high)
    return int(kept) if float(kept).is_integer() else round(float(kept), 2)


def clean_progress(raw: JsonValue) -> dict[str, JsonValue] | None:
    """Seed 000's `progress`; None when nothing of it could be used."""
    if not isinstance(raw, dict):
        return None
    kept: dict[str, JsonValue] = {
        "percent": _number(raw.get("percent"), 0, 100),
        "message": clean_text(raw.get("message")),
        "current_step": _number(raw.get("current_step"), 0, 1e9),
        "total_steps": _number(raw.get("total_steps"), 0, 1e9),
    }
    found: dict[str, JsonValue] = {name: value for name, value in kept.items() if value is not None}
    return found or None


def clean_summary(raw: JsonValue) -> JsonObject | None:
    """Seed 003's structured summary; None when nothing of it could be used."""
    if not isinstance(raw, dict):
        return None
    kept: dict[str, JsonValue] = {
        name: clean_text(raw.get(name)) for name in ("summary", "current_step", "next_step", "risk")
    }
    kept["progress_percent"] = _number(raw.get("progress_percent"), 0, 100)
    found = {name: value for name, value in kept.items() if value is not None}
    return found or None
