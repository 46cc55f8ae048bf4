"""`python3 -m tests.bench [--rounds N] [--tasks N] [--quick] [--bus dbus-broker] [--write FILE]`: measure and print."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import box, restarts, rpc, sessions, workers
from tests.bench.figures import Figure, Spread, as_markdown, as_text
from tests.rig import container, host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.box import Bench

FEW, MANY = 100, 10_000
PARTS = ("speed", "size", "restarts", "door", "sessions", "workers")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of no-op tasks (default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=200, help="no-op tasks in each (default: %(default)s)")
    parser.add_argument("--single", type=int, default=100, help="tasks one after the other (default: %(default)s)")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of doing nothing (default: %(default)s)")
    parser.add_argument("--stored", type=int, default=MANY, help="finished tasks of the big database")
    parser.add_argument("--door", type=float, default=8.0, help="seconds of each request to the JSON-RPC door")
    parser.add_argument("--only", choices=PARTS, help="a part of it")
    parser.add_argument("--quick", action="store_true", help="a little of everything, to see that it works")
    parser.add_argument("--bus", type=container.Bus, choices=list(container.Bus), default=container.Bus.DAEMON)
    parser.add_argument("--write", type=Path, metavar="FILE", help="also as a Markdown document")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.tasks, options.single, options.idle, options.stored = 1, 20, 5, 2.0, FEW * 2
        options.door = 0.4
    return options


def _latency(bench: Bench, count: int) -> list[Figure]:
    found = bench.inside("latency", count=count)
    floor = Spread.of([call + commit for call, commit in zip(found["call"], found["commit"], strict=True)])
    return [
        Figure("create → durable reply", "ms", Spread.of(found["reply"]), floor, "≤ 3"),
        Figure(
            "create → first instruction of the program", "ms", Spread.of(found["first"]),
            Spread.of(found["scope_first"]), "≤ 2",
        ),
    ]  # fmt: skip


def _rates(bench: Bench, rounds: int, count: int) -> list[Figure]:
    found = bench.inside("rates", rounds=rounds, count=count)
    rows = [
        Figure(
            "no-op tasks a second, 10 at a time", "/s", Spread.of(found["tasks"]), Spread.of(found["scopes"]), "≥ 0.5"
        )
    ]
    for name, samples in found.items():
        part = name.removeprefix("cpu ")
        if part != name:
            goal = "≤ 5" if part == "aiosd" else ""
            rows.append(Figure(f"processor time of a no-op task: {part}", "ms", Spread.of(samples), None, goal))
    return rows


def _idle(bench: Bench, seconds: float) -> list[Figure]:
    rows = []
    for service, found in bench.idle(seconds).items():
        short = service.partition(" ")[0]
        rows += [
            Figure(f"idle: processor time a minute, {short}", "ms", Spread.of([found["cpu"]])),
            Figure(f"idle: wake-ups a minute, {short}", "", Spread.of([found["wakeups"]]), None,
                   "≤ 10" if short == "aiosd" else ""),
            Figure(f"idle: memory, {short}", "MiB", Spread.of([found["resident"]]), None,
                   "≤ 60" if short == "aiosd" else ""),
        ]  # fmt: skip
    return rows


def _live(bench: Bench) -> list[Figure]:
    rows = []
    for part, samples in bench.inside("live", count=10).items():
        rows.append(Figure(f"memory of a live task: {part}", "MiB", Spread.of(samples)))
    total = sum(row.measured.median for row in rows)
    return [*rows, Figure("memory of a live task, all parts", "MiB", Spread.of([total]), None, "≤ 1.5")]


def _stored(bench: Bench, many: int) -> list[Figure]:
    lists, resident, ready = [], [], []
    for finished in (FEW, many):
        ready.append(Spread.of([bench.restart_with(finished), bench.restart(), bench.restart()]))
        lists.append(Spread.of(bench.inside("pages", count=100)["list"]))
        resident.append(Spread.of([bench.idle(1)["aiosd"]["resident"]]))
    small = f"at {FEW} finished tasks as the floor"
    return [
        Figure(f"first page of a list at {many} finished tasks, {small}", "ms", lists[1], lists[0], "≤ 1.3"),
        Figure(f"resident memory of aiosd at {many} finished tasks, {small}", "MiB", resident[1], resident[0]),
        Figure(f"start of the process → ready, {many} finished tasks, {small}", "ms", ready[1], ready[0]),
    ]


def _measure(bench: Bench, options: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    if options.only in (None, "speed"):
        figures += _latency(bench, options.single)
        figures += _rates(bench, options.rounds, options.tasks)
    if options.only in (None, "size"):
        bench.restart()
        figures += _idle(bench, options.idle)
        figures += _live(bench)
        figures += _stored(bench, options.stored)
    if options.only in (None, "restarts"):
        figures += restarts.figures(bench, options.stored, 1 if options.quick else 5)
    return figures


def _note(options: argparse.Namespace) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"Linux {platform.release()}, {os.cpu_count()} processors, load {load} at the end, bus {options.bus.value}. "
        "Medians (smallest-largest). Floors were measured in the same rounds, in turns with the product: compare "
        "ratios, not milliseconds, between machines; below 1.2x a difference is noise. Processor "
        "time is the kernel's count by cgroup, which other work on the machine hardly changes."
    )


def _document(figures: Sequence[Figure], note: str) -> str:
    return (
        "# Performance\n\nMade by `python3 -m tests.bench --write docs/performance.md`; what is measured and how is in "
        f"`tests/bench`.\n\n{note}\n\n{as_markdown(figures)}"
    )


def main() -> int:
    """Exit status 69 (EX_UNAVAILABLE) when this machine cannot do it."""
    options = _options(sys.argv[1:])
    figures: list[Figure] = []
    try:
        if options.only not in ("door", "sessions", "workers"):
            with box.prepared(f"bench-{os.getpid()}", options.bus) as bench:
                figures += _measure(bench, options)
        if options.only in (None, "door"):
            figures += rpc.figures(options.door, options.stored if options.quick else rpc.STORED)
        if options.only in (None, "sessions"):
            sizes, rounds, calls = ((20, 40), 1, 2) if options.quick else (sessions.SIZES, 5, 20)
            figures += sessions.figures(sizes, rounds, calls)
        if options.only in (None, "workers"):
            figures += workers.figures((5, 10), 1, 2, 1.0) if options.quick else workers.figures()
    except host.Unavailable as error:
        print(f"bench: {error}", file=sys.stderr)
        return 69
    note = _note(options)
    print(f"{as_text(figures)}\n\n{note}")
    if options.write is not None:
        options.write.write_text(_document(figures, note), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
