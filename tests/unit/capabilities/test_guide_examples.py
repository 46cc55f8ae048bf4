"""The two programs of docs/capabilities.md, run as the guide has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aiosd.manifest.argv import argv_values, build_argv
from aiosd.manifest.parse import parse_manifest
from tests.unit.capabilities.shim_side import ROOT, Run

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.manifest import Capability

GUIDE = (ROOT / "docs/capabilities.md").read_text(encoding="utf-8")


def block(language: str, text: str) -> str:
    """The one fenced block of that language that holds `text`."""
    found = re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    (match,) = [item for item in found if text in item]
    return str(match)


def example(name: str) -> Capability:
    text = block("toml", f'id = "{name}"')
    capability = parse_manifest(text.encode(), f"{name}.toml").capability
    assert capability is not None
    return capability


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory for programs, with the `aios-task` command of this tree in it."""
    made = tmp_path / "bin"
    made.mkdir()
    command = made / "aios-task"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m aiosd.worker.command "$@"\n')
    command.chmod(0o755)
    return made


@pytest.mark.parametrize("name", ["plain.txt", "-a $(b) 'c'.txt"])
def test_the_shell_capability(tmp_path: Path, tools: Path, name: str) -> None:
    capability = example("example.lines.count")
    program = tools / "count-lines"
    program.write_text(block("sh", "aios-task"))
    program.chmod(0o755)
    file = tmp_path / name
    file.write_text("one\ntwo\nthree\n")
    argv = build_argv(capability.exec, argv_values(capability, {"path": str(file)}))
    assert argv[0] == f"/usr/local/libexec/{program.name}"
    path = f"{tools}:{os.defpath}"
    argv[0] = str(program)
    with Run(capability.id, {"path": str(file)}, tmp_path, capability=capability, argv=argv, path=path) as run:
        # Each aios-task is a process of its own, so each counts its own chunks.
        while run.read() is not None:
            pass
    assert [chunk["type"] for chunk in run.chunks] == ["processing", "task_completion"]
    assert run.chunks[1]["payload"] == {"result": {"lines": 3}}


def test_the_python_capability(tmp_path: Path) -> None:
    capability = example("example.words.report")
    program = tmp_path / "word-report"
    program.write_text(block("python", "Counter"))
    library = tmp_path / "texts"
    library.mkdir()
    (library / "a.txt").write_text("The cat and the dog\n")
    (library / "b.txt").write_text("the end")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    argv = [sys.executable, str(program)]
    with Run(capability.id, {"directory": str(library)}, scratch, capability=capability, argv=argv) as run:
        assert run.result() == {"files": 2, "words": 7}
    script = f"cat {library}/*.txt | tr 'A-Z \\n' 'a-z\\n\\n' | grep -c '^the$'"
    counted = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert (scratch / "report.txt").read_text().splitlines()[0] == f"{counted.stdout.decode().strip()}\tthe"
