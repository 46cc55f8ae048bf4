"""`system.unit.restart`: restart one unit and tell what state it was in before and is in after, by systemctl(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.capabilities.program import WorkFailed, run, serve, text_argument

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.worker import Task

SYSTEMCTL = "/usr/bin/systemctl"
_PROPERTIES = "LoadState,ActiveState,SubState,MainPID"


def work(task: Task) -> JsonObject:
    """`systemctl restart` waits for the job, so what is read after it is the outcome."""
    unit = text_argument(task.arguments, "unit")
    before = _state(unit)
    if before["LoadState"] != "loaded":
        raise WorkFailed(f"unit {unit} cannot be restarted: it is {before['LoadState']}")
    task.progress(10, f"Restarting {unit}")
    run([SYSTEMCTL, "--no-ask-password", "restart", "--", unit])
    after = _state(unit)
    task.progress(100, f"{unit} is {after['ActiveState']}")
    return {"unit": unit, "before": _told(before), "after": _told(after)}


def _state(unit: str) -> dict[str, str]:
    shown = run([SYSTEMCTL, "show", f"--property={_PROPERTIES}", "--", unit])
    state = dict.fromkeys(_PROPERTIES.split(","), "")
    for line in shown.splitlines():
        name, _, value = line.partition("=")
        state[name] = value
    return state


def _told(state: dict[str, str]) -> JsonObject:
    told: dict[str, JsonValue] = {"active_state": state["ActiveState"], "sub_state": state["SubState"]}
    if state["MainPID"].isdecimal() and state["MainPID"] != "0":
        told["main_pid"] = int(state["MainPID"])
    return told


def main() -> None:
    """Run as a task."""
    serve(work)


if __name__ == "__main__":
    main()
