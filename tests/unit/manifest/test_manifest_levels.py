"""Below critical a manifest may tighten its level's defaults and never loosen them (design, permissions)."""

from __future__ import annotations

import pytest

from aiosd.model.manifest import Identity, Network
from aiosd.model.status import Level
from tests.unit.manifest.texts import RIGHT, accepted, parse

MIB = 1024 * 1024

# The design's table, typed off it: identity, network, memory MiB, CPU percent, tasks.
DESIGN = {
    "public": ("dynamic", "none", 256, 20, 16),
    "low": ("caller", "none", 512, 50, 64),
    "medium": ("caller", "host", 1024, 100, 128),
    "high": ("caller", "host", 2048, 200, 512),
}


def at(level: str, *lines: str) -> str:
    return RIGHT.replace('"medium"', f'"{level}"') + "\n".join(lines) + "\n"


@pytest.mark.parametrize("level", DESIGN)
def test_defaults_are_the_designs(level: str) -> None:
    capability = accepted(at(level))
    assert capability.limits.memory_max is not None
    told = (
        capability.identity.value,
        capability.network.value,
        capability.limits.memory_max // MIB,
        capability.limits.cpu_quota_percent,
        capability.limits.tasks_max,
    )
    assert told == DESIGN[level]


@pytest.mark.parametrize("level", DESIGN)
def test_exactly_the_default_is_allowed_and_one_more_is_not(level: str) -> None:
    _, _, memory, cpu, tasks = DESIGN[level]
    limits = {"memory_max": (f"{memory}M", f"{memory + 1}M"), "cpu_quota": (f"{cpu}%", f"{cpu + 1}%")}
    for key, (allowed, refused) in limits.items():
        accepted(at(level, "[limits]", f'{key} = "{allowed}"'))
        parsed = parse(at(level, "[limits]", f'{key} = "{refused}"'))
        assert parsed.capability is None
        assert f"level {level} allows at most" in parsed.problems[0].message
    accepted(at(level, "[limits]", f"tasks_max = {tasks}"))
    assert parse(at(level, "[limits]", f"tasks_max = {tasks + 1}")).capability is None


@pytest.mark.parametrize(
    ("level", "line"),
    [
        ("public", 'user = "caller"'),
        ("public", 'user = "root"'),
        ("public", 'network = "host"'),
        ("public", 'home = "read-only"'),
        ("low", 'user = "root"'),
        ("low", 'network = "host"'),
        ("low", 'home = "read-write"'),
        ("low", 'read_write_paths = ["/srv"]'),
        ("medium", 'user = "daemon"'),
        ("high", 'read_write_paths = ["/"]'),
    ],
)
def test_looser_is_refused(level: str, line: str) -> None:
    parsed = parse(at(level, line))
    assert parsed.capability is None
    assert parsed.problems[0].key == line.split(" ")[0]


@pytest.mark.parametrize(
    ("level", "line"),
    [
        ("low", 'user = "dynamic"'),
        ("medium", 'network = "none"'),
        ("high", 'user = "root"'),
        ("high", 'home = "none"'),
        ("high", 'read_write_paths = ["/srv"]'),
    ],
)
def test_tighter_is_allowed_and_so_is_what_level_high_may_name(level: str, line: str) -> None:
    accepted(at(level, line))


@pytest.mark.parametrize("level", ["public", "low", "medium", "high", "critical"])
def test_netlink_may_be_seen_at_every_level(level: str) -> None:
    user = 'user = "root"' if level == "critical" else ""
    assert accepted(at(level, 'network = "netlink"', user)).network is Network.NETLINK


def test_critical_says_its_user_and_is_as_the_manifest_says() -> None:
    refused = parse(at("critical"))
    assert refused.capability is None
    assert (refused.problems[0].key, refused.problems[0].line) == ("user", None)
    capability = accepted(
        at(
            "critical",
            'user = "root"',
            'read_write_paths = ["/"]',
            "[limits]",
            'memory_max = "512G"',
            "cpu_weight = 500",
        )
    )
    assert (capability.level, capability.identity, capability.user) == (Level.CRITICAL, Identity.NAMED, "root")
    assert capability.limits.memory_max == 512 * 1024 * MIB
    assert capability.limits.tasks_max is None
