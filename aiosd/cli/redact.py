"""Takes secrets out of text that leaves the machine: a bug report is read by strangers.

Nothing here knows what is a secret on this machine; it goes by where secrets stand (headers, `key=value`,
addresses) and what they look like. In doubt the rest of the line goes: a report with a hole is better than
one with a password. The first line of defence is `report.py`, which does not collect what holds secrets: no arguments,
no results, no output of tasks, nothing sealed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REMOVED = "[removed]"

_NAMED = (
    r"[\w.-]*(?:password|passwd|passphrase|secret|token|credential|api[_.-]?key|private[_.-]?key|access[_.-]?key|"
    r"session[_.-]?key|auth[_.-]?response|authentication|authorization|cookie)[\w.-]*"
)
_QUOTED = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_VALUE = rf"""(?:{_QUOTED}|[\[{{][^\n]*|[^\s,;)\]}}"']+)"""

_Rule = tuple[re.Pattern[str], "str | Callable[[re.Match[str]], str]"]


def _mixed(found: re.Match[str]) -> str:
    """A long word goes when it has small letters, capitals and digits: a key, no name, digest or id of ours."""
    word = found[0]
    kinds = (str.islower, str.isupper, str.isdigit)
    return REMOVED if all(any(kind(letter) for letter in word) for kind in kinds) else word


_RULES: tuple[_Rule, ...] = (
    # RFC 7468: keys in PEM, also one that is cut off
    (re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL), REMOVED),
    # RFC 9110, 11.6.2; RFC 6265: the value of these headers is the rest of the line
    (
        re.compile(
            r"(?i)(\b(?:proxy-|www-)?auth(?:orization|enticate)[\"']?\s*[:=]|\b(?:set-)?cookie2?[\"']?\s*[:=])[^\n]*"
        ),
        rf"\1 {REMOVED}",
    ),
    # a scheme of RFC 9110 with what follows it, wherever it stands
    (re.compile(r"(?i)\b(bearer|basic|digest|negotiate|hawk)(\s+)[A-Za-z0-9._~+/=-]{6,}"), rf"\1\2{REMOVED}"),
    # --token X, --api-key=X
    (re.compile(rf"(?i)(--{_NAMED}[ =]){_VALUE}"), rf"\1{REMOVED}"),
    # key: several words, key = several words
    (re.compile(rf"(?i)(\b{_NAMED}\s*[:=]\s+)(?![\[{{\"'])[^\n]+"), rf"\1{REMOVED}"),
    # key=value, "key": "value", key: {…
    (re.compile(rf"(?i)(\b{_NAMED}\\?[\"']?\s*[:=]\s*\\?)(?!\[removed\]){_VALUE}"), rf"\1{REMOVED}"),
    # RFC 3986: user and password of any address; of a web address also the path and the query, which often are the key
    (re.compile(r"(?i)\b(https?://)(?:[^\s/@\"'<>]*@)?([^\s/?#\"'<>]+)[/?#][^\s\"'<>]+"), rf"\1\2/{REMOVED}"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@\"'<>]+@"), rf"\1{REMOVED}@"),
    # what the issuers of tokens put at their beginning, and JSON web tokens (RFC 7519)
    (
        re.compile(
            r"\b(?:gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|sk-|pk_live_|rk_live_|AKIA|ASIA|AIza|eyJ)[\w.~+/=-]{12,}"
        ),
        REMOVED,
    ),
    (re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}"), _mixed),
)


def redact(text: str) -> str:
    """`text` without what is, or may be, a secret."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
