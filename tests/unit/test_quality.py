"""Linters as tests: style, types, the direction of dependencies, sizes, and what other programs will parse."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests import prerequisites
from tests.conftest import FIRST
from tests.rig import host

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.quality

ROOT = host.CHECKOUT
SCRIPTS = ("packaging/install", "packaging/tools", "packaging/manpage", "image/boot", "image/update-and-rollback")
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 50
BUS_NAME = "org.aios.TaskManager"
STANDARD_INTERFACES = {f"org.freedesktop.DBus.{name}" for name in ("Properties", "Introspectable", "Peer")}


def _tool(name: str, *arguments: str) -> None:
    """Run a development tool that is installed beside this Python."""
    program = Path(sys.executable).with_name(name)
    if not program.exists():
        prerequisites.missing(f"no {name} beside {sys.executable}")
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _sources(*tops: str) -> list[Path]:
    return [path for top in tops for path in sorted((ROOT / top).rglob("*.py"))]


def test_ruff() -> None:
    _tool("ruff", "check", "--no-cache", ".", *SCRIPTS)


def test_format() -> None:
    _tool("ruff", "format", "--no-cache", "--check", ".", *SCRIPTS)


def test_types() -> None:
    _tool("mypy")
    _tool("mypy", "--scripts-are-modules", *SCRIPTS)


def test_what_begins_first_is_there() -> None:
    assert [name for name in FIRST if not (ROOT / "tests" / name).is_file()] == []


def test_direction_of_dependencies() -> None:
    _tool("lint-imports", "--no-cache")


@pytest.mark.parametrize("path", _sources("aiosd"), ids=lambda path: str(path.relative_to(ROOT)))
def test_size_of_a_module_and_its_functions(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < MAX_MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            assert node.end_lineno - node.lineno < MAX_FUNCTION_LINES, node.name


def _markup() -> list[Path]:
    return [path for pattern in ("dbus/*.xml", "dbus/*.conf", "polkit/*.policy") for path in sorted(ROOT.glob(pattern))]


@pytest.mark.parametrize("path", _markup(), ids=lambda path: path.name)
def test_xml_is_well_formed(path: Path) -> None:
    ElementTree.parse(path)  # noqa: S314 - our own file


def _policy_rules() -> list[dict[str, str]]:
    policy = ElementTree.parse(ROOT / "dbus/org.aios.TaskManager.conf")  # noqa: S314 - our own file
    return [rule.attrib for rule in policy.iter("allow")]


def test_every_allow_names_its_destination() -> None:
    sending = [rule for rule in _policy_rules() if "own" not in rule]
    assert sending
    assert {rule.get("send_destination") for rule in sending} == {BUS_NAME}
    assert [rule for rule in _policy_rules() if "own" in rule] == [{"own": BUS_NAME}]


def test_the_bus_lets_exactly_the_declared_interfaces_through() -> None:
    declared = {path.stem for path in ROOT.glob("dbus/*.xml")}
    allowed = {rule["send_interface"] for rule in _policy_rules() if "send_interface" in rule}
    assert allowed == declared | STANDARD_INTERFACES


def _installer() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("install", str(ROOT / "packaging/install"))
    spec = importlib.util.spec_from_loader("install", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["install"] = module  # dataclasses look their module up
    try:
        loader.exec_module(module)
    finally:
        del sys.modules["install"]
    return module


def test_every_installed_program_has_its_module() -> None:
    programs: dict[str, str] = _installer().PROGRAMS
    for target, entry in programs.items():
        module, _, function = entry.partition(":")
        spec = importlib.util.find_spec(module)
        assert spec is not None, f"{target}: no module {module}"
        assert spec.origin is not None
        names = {
            node.name for node in ast.parse(Path(spec.origin).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        assert function in names, f"{target}: no {entry}"


def test_every_unit_starts_an_installed_program() -> None:
    programs: dict[str, str] = _installer().PROGRAMS
    started = [
        line.partition("=")[2]
        for unit in ROOT.glob("systemd/*.service")
        for line in unit.read_text().splitlines()
        if line.startswith("ExecStart=")
    ]
    assert started
    assert {program.lstrip("/") for program in started} <= set(programs)


def test_install_refuses_the_machine_itself() -> None:
    argv = [sys.executable, str(ROOT / "packaging/install"), "--root", "/"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--this-machine" in done.stderr


def test_install_lays_out_the_same_twice(tmp_path: Path) -> None:
    _installer().install(tmp_path, "/usr/lib/python3/dist-packages")
    first = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    stale = tmp_path / "usr/lib/python3/dist-packages/aiosd/gone.py"
    stale.write_text("")
    _installer().install(tmp_path, "/usr/lib/python3/dist-packages")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == first
    assert tmp_path / "usr/bin/aiosctl" in first
