"""A task's life with a launcher that does what it is told: every end that a run can have (seed 000, design)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.core.rig import core, play

if TYPE_CHECKING:
    from pathlib import Path


def test_a_task_that_exits_with_zero_completes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task = await aios.create()
            after = await aios.ended(task)
            assert after.status == "completed"
            assert after.result == {"exit_status": 0}
            assert await aios.history(task) == ["pending", "working", "completed"]

    play(scenario())
