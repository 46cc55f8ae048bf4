"""`{name}` in `exec`: one argument, whole, and nothing else."""

from __future__ import annotations

import pytest

from aiosd.manifest.argv import MAX_VALUE_BYTES, argv_values, build_argv
from tests.unit.manifest.texts import accepted, replaced

TEXT = (
    replaced("exec", 'exec = ["/usr/bin/x", "--n={n}", "--", "{s}", "{n}", "{b}", "{f}", "{s}"]')
    + """
[input]
type = "object"
additionalProperties = false
required = ["s"]
[input.properties]
s = { type = "string" }
n = { type = "integer", default = 7 }
b = { type = "boolean", default = false }
f = { type = "number", default = 0.5 }
"""
)
CAPABILITY = accepted(TEXT)


@pytest.mark.parametrize("text", ["two words", "; rm -rf /", "$(id)", "", "-x", "{n}", "a\nb", "ü"])
def test_a_text_is_one_argument_as_it_is(text: str) -> None:
    argv = build_argv(CAPABILITY.exec, argv_values(CAPABILITY, {"s": text}))
    assert argv == ["/usr/bin/x", "--n={n}", "--", text, "7", "false", "0.5", text]


def test_numbers_and_booleans_as_json_writes_them() -> None:
    values = argv_values(CAPABILITY, {"s": "x", "n": -3, "b": True, "f": 1e30})
    assert values == {"s": "x", "n": "-3", "b": "true", "f": "1e+30"}


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * (MAX_VALUE_BYTES + 1)])
def test_what_execve_cannot_take_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="s: "):
        argv_values(CAPABILITY, {"s": text})
    with pytest.raises(ValueError, match="s: "):
        build_argv(CAPABILITY.exec, {"s": text, "n": "1", "b": "true", "f": "1"})


@pytest.mark.parametrize("values", [{}, {"s": "x"}, {"s": "x", "n": "1", "b": "true", "f": "1", "more": "x"}])
def test_the_launcher_takes_exactly_the_names_of_the_manifest(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not the ones"):
        build_argv(CAPABILITY.exec, values)
