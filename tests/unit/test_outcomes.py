"""The tables of docs/reliability.md are those that tests write; no row without a test, no test without its row."""

from __future__ import annotations

import re

import pytest

from tests.outcomes import END, PAGE, begin, rows, with_row
from tests.rig import host
from tests.unit.reliability.scenarios import SCENARIOS

TABLE = f"text\n{begin('x')}\n| a | b |\n|---|---|\n| one | 1 |\n| two | 2 |\n{END}\nmore\n"


def test_a_row_takes_the_place_of_the_one_of_its_name_or_comes_last() -> None:
    once = with_row(TABLE, "x", "| one | 7 |")
    assert rows(once, "x") == [["one", "7"], ["two", "2"]]
    more = with_row(once, "x", "| three | 3 |")
    assert rows(more, "x") == [["one", "7"], ["two", "2"], ["three", "3"]]
    assert more.startswith("text\n")
    assert more.endswith(f"{END}\nmore\n")
    with pytest.raises(LookupError):
        with_row(TABLE, "y", "| one | 7 |")


def test_every_fault_of_the_page_has_its_test_and_every_test_its_row() -> None:
    sources = "".join(path.read_text() for path in (host.CHECKOUT / "tests/system").glob("test_*.py"))
    noted = set(re.findall(r'note\(\s*"faults",\s*f?"([^"]+)"', sources))
    shown = {row[0] for row in rows(PAGE.read_text(), "faults")}
    damage = {name for name in shown if name.startswith("database: ")}
    assert noted - {"database: {damage}"} == shown - damage
    assert len(damage) == 5


def test_every_scenario_of_deaths_is_in_the_page_and_nothing_was_wrong() -> None:
    found = {row[0]: row[1:] for row in rows(PAGE.read_text(), "crashes")}
    titles = {one.title for one in SCENARIOS.values()}
    assert found.keys() == titles | {f"{title}; and again in recovery" for title in titles}
    assert all(int(deaths) > 0 and wrong == "0" for deaths, wrong in found.values())
