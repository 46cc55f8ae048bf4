"""Objects that are not counted, on the interpreters on which it was tried; nothing at all on the others (PEP 683)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]

CODE = """
import gc, json, os, sys
sys.path.insert(0, sys.argv[1])
from aiosd.run import immortal

def count(item):
    before = sys.getrefcount(item)
    held = [item] * 1000
    return sys.getrefcount(item) - before

def words():
    return "some words of a constant"

class Kept:
    pass

kept = Kept()
things = (words, words.__code__, words.__code__.co_consts, Kept, kept, Kept.__dict__, json.loads, sys.modules)
assert {count(item) for item in things} == {1000}
known = immortal.is_known()
made = immortal.make_immortal()
counted = [count(item) for item in things]
fresh = count(object())

# and the interpreter works on: new classes, errors, collections, what was there and what is new
for _ in range(50):
    Again = type("Again", (Kept,), {"__slots__": ("a",)})
    try:
        json.loads("{" + words())
    except ValueError as error:
        assert "Expecting property name" in str(error)
    Kept.number = kept.number = 2
    del Kept.number
    gc.collect()
print(json.dumps({"known": known, "made": made, "counted": counted, "fresh": fresh}), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Told:
    """What CODE prints. `counted`, `fresh`: by how much the count of an object rose when 1000 references were made."""

    known: bool
    made: int
    counted: list[int]
    fresh: int


@pytest.fixture(scope="module")
def told() -> Told:
    argv = [sys.executable, "-I", "-S", "-c", CODE, str(CHECKOUT)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    return Told(**json.loads(done.stdout))


def test_it_is_done_where_the_interpreter_has_immortal_objects(told: Told) -> None:
    assert told.known == (sys.version_info[:2] in ((3, 12), (3, 13)))
    assert (told.made > 5000) == told.known


def test_what_was_there_is_not_counted_any_more(told: Told) -> None:
    assert set(told.counted) == {0 if told.known else 1000}


def test_what_is_made_later_is_counted(told: Told) -> None:
    assert told.fresh == 1000
