"""Tables that point to tests: what each row names must be a test that there is."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parents[2]


@cache
def _tests_of(module: str) -> frozenset[str]:
    path = ROOT / "tests" / f"{module}.py"
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def missing(table: Mapping[str, Iterable[str]]) -> list[str]:
    """Rows that name nothing, and `module::test` (without `tests/` and `.py`) that is not there."""
    wrong = [row for row, tests in table.items() if not tuple(tests)]
    for row, tests in table.items():
        for node in tests:
            module, _, name = node.partition("::")
            if not name.startswith("test_") or name not in _tests_of(module):
                wrong.append(f"{row}: {node}")
    return wrong
