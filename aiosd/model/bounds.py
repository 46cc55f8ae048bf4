"""Bounds that the models of parameters share with who checks the same without them."""

from __future__ import annotations

MAX_MILLISECONDS = 366 * 24 * 3600 * 1000
"""Longest time-out or delay that can be asked for: a year."""

MAX_CONTENT = 64 * 1024
"""Longest message of a session, in characters."""
