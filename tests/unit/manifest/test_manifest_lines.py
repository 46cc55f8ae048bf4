"""`key_lines`: the right line in texts that are made to mislead."""

from __future__ import annotations

import tomllib

from aiosd.manifest.lines import key_lines, line_of

MISLEADING = '''\
# title = "no"
title = "a # not a comment"   # id = "no"

text = """
id = "inside a string"
[limits]
\\""" still inside
"""
literal = \'\'\'
[retry]
delay = 1\'\'\'
list = [
  "exec = 1", # ]
  { a = [ 1, 2 ] },
]
id = "x.y"
"quoted key" = 1
a . "b c" . d = 2

[ limits ] # the real one
memory_max = "1M"
[input.properties."odd.name"]
type = "string"
[[things]]
n = 1
[[things]]
n = 2
'''


def test_lines_of_a_text_made_to_mislead() -> None:
    assert "things" in tomllib.loads(MISLEADING)
    lines = key_lines(MISLEADING)
    assert lines[("title",)] == 2
    assert lines[("text",)] == 4
    assert lines[("literal",)] == 9
    assert lines[("list",)] == 12
    assert lines[("id",)] == 16
    assert lines[("quoted key",)] == 17
    assert lines[("a", "b c", "d")] == 18
    assert lines[("limits",)] == 20
    assert lines[("limits", "memory_max")] == 21
    assert lines[("input", "properties", "odd.name", "type")] == 23
    assert lines[("things",)] == 24
    assert ("retry",) not in lines


def test_a_place_without_a_line_gets_that_of_what_encloses_it() -> None:
    lines = key_lines("x = { y = 1 }\n")
    assert line_of(lines, ("x", "y", "z")) == 1
    assert line_of(lines, ("nowhere",)) is None
