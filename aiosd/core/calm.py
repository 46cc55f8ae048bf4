"""The first moments of a daemon: who has waited for it comes all at once and is served first, what can wait waits."""

from __future__ import annotations

CALM = 1.5
"""Seconds of them."""
