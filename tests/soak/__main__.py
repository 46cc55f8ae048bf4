"""The soak: users at work, services killed at random; in the end the store is held against what was promised.

`python3 -m tests.soak [--minutes 30] [--seed N]` boots a box of its own and prints its figures; exit status 1 when
something was lost, ran on, or grew without bound. `AIOSD_WRITE_DOCS=1` writes them into docs/reliability.md. CI runs
two minutes of it (`test_soak.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.outcomes import note
from tests.rig import container, host, product

if TYPE_CHECKING:
    from tests.rig.container import Container

USERS = ("root", "alice", "bob")
BLOW_EVERY = 4.0
"""Seconds between two kills on average."""
BLOWS = {
    "aiosd killed": ("systemctl", "kill", "--signal=KILL", "aiosd.service"),
    "launcher killed": ("systemctl", "kill", "--signal=KILL", "aios-launcher.service"),
    "aiosd restarted": ("systemctl", "restart", "aiosd.service"),
    "systemd executed again": ("systemctl", "daemon-reexec"),
}
MAX_RSS = 200 << 20
MAX_DESCRIPTORS = 400
MAX_THREADS = 32
MAX_WAL = 80 << 20
FINALS = frozenset({"completed", "failed", "canceled"})
CAPABILITIES = "/run/aios/capabilities.d"


@dataclass
class Figures:
    """What was seen. Bytes and counts: the largest at any look."""

    blows: dict[str, int] = field(default_factory=dict)
    rss: int = 0
    descriptors: int = 0
    threads: int = 0
    database: int = 0
    wal: int = 0
    problems: list[str] = field(default_factory=list)
    promised: int = 0
    calls: int = 0
    silence: float = 0.0
    refused: dict[str, int] = field(default_factory=dict)

    def look(self, box: Container) -> None:
        """Measure the daemon, if it is there at this moment."""
        shown = box.sh(
            "p=$(systemctl show --value --property=MainPID aiosd.service); "
            "awk '/VmRSS|Threads/ {print $2}' /proc/$p/status; ls /proc/$p/fd | wc -l; "
            "stat -c %s /var/lib/aiosd/aiosd.db /var/lib/aiosd/aiosd.db-wal",
            check=False,
        ).split()  # fmt: skip
        if len(shown) == 5 and all(word.isdigit() for word in shown):
            rss, threads, descriptors, database, wal = map(int, shown)
            self.rss, self.threads = max(self.rss, rss << 10), max(self.threads, threads)
            self.descriptors, self.wal = max(self.descriptors, descriptors), max(self.wal, wal)
            self.database = max(self.database, database)

    def judge(self) -> None:
        """Bounds of what was measured."""
        for name, value, most in (
            ("resident memory", self.rss, MAX_RSS), ("descriptors", self.descriptors, MAX_DESCRIPTORS),
            ("threads", self.threads, MAX_THREADS), ("write-ahead log", self.wal, MAX_WAL),
        ):  # fmt: skip
            if value > most:
                self.problems.append(f"{name}: {value}, more than {most}")


def disturb(box: Container, figures: Figures, chance: random.Random, seconds: float) -> None:
    """Kill and restart, at random, for that long."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, chance.random() * 2 * BLOW_EVERY))
        name = chance.choice(list(BLOWS))
        box.run(*BLOWS[name], check=False)
        figures.blows[name] = figures.blows.get(name, 0) + 1
        box.run("systemctl", "reset-failed", "aiosd.service", "aios-launcher.service", check=False)
        figures.look(box)


def resume(box: Container) -> None:
    """Let every paused task go on, as an administrator would."""
    shown = json.loads(box.sh("aiosctl list --json --all-users --status paused --limit 100"))
    for task in shown["tasks"]:
        box.run("aiosctl", "resume", str(task["task_id"]), check=False)


def settle(box: Container, figures: Figures, told: list[dict[str, object]], within: float = 120) -> None:
    """Every promised task comes to its end, no scope and no run stays, and the store is sound."""
    promised = [str(task) for one in told for task in list(one["promised"])]  # type: ignore[call-overload]  # a list
    figures.promised = len(promised)
    deadline = time.monotonic() + within
    while True:
        shown = box.sh("aiosctl status --json", check=False)
        tasks = json.loads(shown)["tasks"] if shown.startswith("{") else {}
        if tasks and not tasks["running"] and not tasks["queued"]:
            break
        if tasks and tasks["paused"]:  # its user was told that the daemon died, and so did not let it go on
            resume(box)
        if time.monotonic() > deadline:
            figures.problems.append(f"not at rest after {within} s: {tasks}")
            break
        time.sleep(0.5)
    rows = [json.loads(line) for line in box.sh("aiosctl state export").splitlines()]
    by_id = {row["row"]["id"]: row["row"] for row in rows if row.get("table") == "tasks"}
    figures.problems += [f"{task} is lost" for task in promised if task not in by_id]
    there = [by_id[task] for task in promised if task in by_id]
    figures.problems += [f"{row['id']} is {row['status']}" for row in there if row["status"] not in FINALS]
    lost = [row for row in by_id.values() if row["reason"] in ("lost", "supervisor-died", "reboot")]
    figures.problems += [f"{row['id']} lost its run: {row['reason']}" for row in lost]
    open_runs = [row["row"] for row in rows if row.get("table") == "runs" and row["row"]["state"] != "ended"]
    figures.problems += [f"{run['id']} is {run['state']}" for run in open_runs]
    numbers = [row["row"]["seq"] for row in rows if row.get("table") == "events"]
    if numbers and sorted(numbers) != list(range(min(numbers), max(numbers) + 1)):
        figures.problems.append("the event log has a gap")
    figures.problems += [f"scope left: {line}" for line in box.sh(
        "systemctl list-units --plain --no-legend 'aios-task-*.scope'").splitlines()]  # fmt: skip
    for command in ("aiosctl state check", "aiosctl audit verify"):
        done = box.run("sh", "-c", command, check=False)
        if done.returncode:
            figures.problems.append(f"{command}: {done.stdout}{done.stderr}")


def soak(minutes: float, seed: int) -> Figures:
    """All of it, in a box of its own."""
    figures, chance = Figures(), random.Random(seed)  # noqa: S311  choices that can be made again
    box = container.Container.boot(f"soak-{os.getpid()}", bind={host.CHECKOUT: "/src"}, owned=True)
    try:
        product.deploy(box)
        box.sh(f"mkdir -p -m 755 {CAPABILITIES} && cp /src/tests/system/capabilities.d/*.toml {CAPABILITIES}")
        box.run("systemctl", "reload", "aiosd.service")
        with ExitStack() as stack:
            users = [
                stack.enter_context(box.popen(
                    "python3", "-m", "tests.soak.user", str(chance.randrange(1 << 30)), str(minutes * 60), user=user,
                    env={"PYTHONPATH": "/src", "PYTHONDONTWRITEBYTECODE": "1"},
                ))
                for user in USERS
            ]  # fmt: skip
            disturb(box, figures, chance, minutes * 60)
            told = []
            for name, user in zip(USERS, users, strict=True):
                out, err = user.communicate(timeout=60)
                try:
                    told.append(json.loads(out))
                except ValueError:
                    figures.problems.append(f"the user {name} ended early: {err.decode(errors='replace')[-400:]}")
        for one in told:
            figures.calls += one["calls"]
            figures.silence = max(figures.silence, one["silence"])
            for name, count in one["refused"].items():
                figures.refused[name] = figures.refused.get(name, 0) + count
        settle(box, figures, told)
        figures.judge()
    finally:
        box.stop()
    return figures


def as_rows(figures: Figures, minutes: float, load: float) -> dict[str, str]:
    """For docs/reliability.md: name and value."""
    mib = 1 << 20
    died = figures.refused.get("died", 0)
    refused = {name: count for name, count in figures.refused.items() if name != "died"}
    return {
        "minutes": f"{minutes:.0f}, load of the machine at the end {load:.0f}",
        "blows": f"{sum(figures.blows.values())}: "
        + ", ".join(f"{count} {name}" for name, count in sorted(figures.blows.items())),
        "calls": f"{figures.calls}, of which the connection died in {died}",
        "refused": ", ".join(f"{count} {name}" for name, count in sorted(refused.items())) or "0",
        "tasks promised": f"{figures.promised}",
        "lost, run lost, without an end, scope left, anything else wrong": f"{len(figures.problems)}",
        "resident memory, descriptors, threads, at most": f"{figures.rss / mib:.0f} MiB, {figures.descriptors}, "
        f"{figures.threads}",
        "database, write-ahead log, at most": f"{figures.database / mib:.1f} MiB, {figures.wal / mib:.1f} MiB",
        "longest silence for a caller": f"{figures.silence:.1f} s",
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    figures = soak(options.minutes, options.seed)
    for row in as_rows(figures, options.minutes, os.getloadavg()[0]).items():
        note("soak", *row)
    print(json.dumps({"seed": options.seed, "minutes": options.minutes, **vars(figures)}, indent=2))
    sys.exit(1 if figures.problems else 0)


if __name__ == "__main__":
    main()
