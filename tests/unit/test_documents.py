"""What the documents name is there: commands and their options, methods, actions, settings, files, links, pages.

What is made from tables (keys, settings, verbs, methods, errors) has tests of its own beside those tables.
"""

from __future__ import annotations

import argparse
import re
import textwrap
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import click
import pytest

from aiosd.auth import ceiling
from aiosd.cli.main import VERBS
from aiosd.config.settings import settings
from aiosd.manifest.keys import KEYS
from aiosd.model.status import Level, Reason
from aiosd.rpc import stream_request
from aiosd.rpc.methods import METHODS
from aiosd.run.identity import environment
from aiosd.worker import command

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/man").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md")), *PAGES]
INSTALLED = [*sorted((ROOT / "systemd").iterdir()), *sorted((ROOT / "dbus").iterdir())]
NAME = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

COMMON = {"--json", "--color", "--no-ask-password", "--help"}
CODE = re.compile(r"^```.*?^```|`[^`\n]+`|^(?:    [^\n]*\n)+", re.DOTALL | re.MULTILINE)
"""What is shown as typed: fenced, in backquotes, indented."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def found_command(words: list[str]) -> tuple[click.Command | None, list[str]]:
    """The command that the words begin with, None when there is none; and the other words."""
    verb = VERBS.get(words[0])
    if verb is None:
        return None, words
    found, rest = verb.load(), words[1:]
    while isinstance(found, click.Group) and rest:
        inner = found.commands.get(rest[0])
        if inner is None:
            return (found if rest[0].startswith("-") else None), rest
        found, rest = inner, rest[1:]
    return found, rest


def typed_commands(text: str) -> Iterator[str]:
    """Everything after `aiosctl` on a line of code, up to where its shell ends the command."""
    for code in CODE.findall(text):
        yield from re.findall(r"\baiosctl ([a-z][^\n`|;&)#…*]*)", code)


@pytest.mark.parametrize("name", [*NAME, *(str(path.relative_to(ROOT)) for path in INSTALLED)])
def test_every_command_of_aiosctl_and_each_of_its_options_is_one(name: str) -> None:
    for line in typed_commands(text_of(name)):
        words = line.split(" -- ")[0].split()
        for alternative in words[0].split("|"):  # `session|plan|tree`
            found, rest = found_command([alternative, *words[1:]])
            assert found is not None, line
            options = {word for each in found.params for word in (*each.opts, *each.secondary_opts)} | COMMON
            named = {re.split("[=\\]]", word.lstrip("["))[0] for word in rest if re.match(r"\[?--?[a-z]", word)}
            assert named <= options, line


@pytest.mark.parametrize("name", NAME)
def test_every_link_leads_somewhere(name: str) -> None:
    here = (ROOT / name).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", text_of(name))):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        there = here / path if path else ROOT / name
        assert there.exists(), target
        headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


@cache
def files() -> frozenset[str]:
    """Every path of the checkout as a document may name it: from its root, from a directory in it, or by name alone."""
    skipped = {".git", ".venv", "__pycache__", ".hypothesis"}
    every = [path.relative_to(ROOT) for path in ROOT.rglob("*") if not skipped & set(path.relative_to(ROOT).parts)]
    every = [path for path in every if path.parts[0] != "build"]
    names = {str(path) for path in every} | {path.name for path in every}
    for above in ("docs/", "aiosd/", "tests/", "tests/unit/", "tests/system/", "packaging/", "tests/unit/reliability/"):
        names |= {str(path).removeprefix(above) for path in every if str(path).startswith(above)}
    return frozenset(names)


@pytest.mark.parametrize("name", NAME)
def test_every_file_of_the_source_that_is_named_is_there(name: str) -> None:
    own = re.compile(
        r"(?:docs|tests|aiosd|packaging|image|polkit|dbus|systemd|core|store|run|rpc|bus|model|hooks|auth)/"
    )
    text = re.sub(r"^```.*?^```", "", text_of(name), flags=re.DOTALL | re.MULTILINE)
    for word in re.findall(r"(?<![\w/.`])`?([\w.-]+(?:/[\w.-]+)+|[\w-]+\.(?:py|md|sql|xml|svg))\b", text):
        if word.endswith((".py", ".md", ".xml", ".svg")) or own.match(word):
            assert word.rstrip(".") in files() or _is_no_file(word), word


def _is_no_file(word: str) -> bool:
    """Of the installed system, below a directory that was named before it."""
    return word in {"systemd/system-preset", "systemd/catalog"}


@pytest.mark.parametrize("name", NAME)
def test_every_module_that_is_to_be_run_is_there(name: str) -> None:
    for module in re.findall(r"python3? -m ([a-z_.]+)", text_of(name)):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_every_polkit_action_that_is_named_is_one() -> None:
    policy = ElementTree.parse(ROOT / "polkit/org.aios.TaskManager.policy")  # noqa: S314  our own
    actions = {str(action.get("id")) for action in policy.iter("action")}
    for name in NAME:
        named = set(re.findall(r"org\.aios\.TaskManager\.[a-z]+-?[a-z]*", text_of(name)))
        assert {each for each in named if not each.endswith(("run-", ".conf", ".service", ".policy"))} <= actions, name


def test_the_actions_and_their_defaults_are_those_of_the_policy() -> None:
    policy = ElementTree.parse(ROOT / "polkit/org.aios.TaskManager.policy")  # noqa: S314  our own
    rows = re.findall(
        r"^\| `([a-z-]+)` \|.*\| (\w+) \| (\w+) \| (\w+) \|$", text_of("docs/permissions.md"), re.MULTILINE
    )
    defaults = ("allow_active", "allow_inactive", "allow_any")
    assert rows == [
        (name, *(action.findtext(f"defaults/{default}") for default in defaults))
        for action in policy.iter("action")
        if not (name := str(action.get("id")).removeprefix("org.aios.TaskManager.")).startswith("run-")
    ]


@pytest.mark.parametrize("name", NAME)
def test_every_method_that_is_named_is_one(name: str) -> None:
    named = set(re.findall(r"`(aios/[a-z]+\.?[a-z_]*)\b(?!\.?\*)", text_of(name)))
    assert named <= {*METHODS, "aios/event"}


@pytest.mark.parametrize("name", NAME)
def test_every_setting_that_is_given_a_value_is_one(name: str) -> None:
    own = {row.name for row in settings()} | {key.path[-1] for key in KEYS}
    policy = set(ceiling._KEYS)
    request = {"cancel_tasks", "last_event_id", "task_id", "subscription_id", "all_users", "grace_ms"}
    named = set(re.findall(r"[`*]([a-z]+(?:_[a-z]+)+) ?= ?[^`*]*[`*]", text_of(name)))
    assert named <= own | policy | request


@pytest.mark.parametrize("name", NAME)
def test_every_row_is_in_its_table(name: str) -> None:
    """A table begins with a heading and a rule; what stands alone after an empty line is shown as text."""
    text = re.sub(r"^```.*?^```", "", text_of(name), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert re.match(r"\|.*\n\|(?: *:?-+:? *\|)+\n", table), table[:80]


def test_no_line_of_a_page_is_taken_for_an_item_of_a_list() -> None:
    """A number that happens to begin a line would be counted anew by the program that sets the pages."""
    for path in PAGES:
        assert re.findall(r"^ +\d+[.)] .*", path.read_text(encoding="utf-8"), re.MULTILINE) == [], path.name


def test_pages_refer_to_pages_that_are_there() -> None:
    own = {path.name.removesuffix(".md") for path in PAGES}
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        named = {f"{name}.{section}" for name, section in re.findall(r"\*\*(aios[\w.-]*)\*\*\((\d)\)", text)}
        assert named <= own
        assert set(re.findall(r"`([\w-]+\.md)` in `/usr/share/doc/aiosd`", text)) <= {
            document.name for document in (ROOT / "docs").glob("*.md")
        }


def test_the_words_of_an_event_stream_are_documented() -> None:
    section = text_of("docs/protocol.md").partition("\n## Events\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z_]+)=", section)) == stream_request._QUERY


def test_the_policy_files_are_documented() -> None:
    page = text_of("docs/man/aios.permission-policy.5.md")
    assert re.findall(r"^\*([a-z_]+)=\*$", page, re.MULTILINE) == list(ceiling._KEYS)
    examples = re.findall(r"^    # /etc/aios/permission-policy.toml\n((?:    .*\n)+)", page, re.MULTILINE)
    examples += re.findall(r"```toml\n(.*?)```", text_of("docs/permissions.md"), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        policy, problems = ceiling.parse(textwrap.dedent(example).encode(), "example")
        assert (problems, policy.max_level, policy.always_deny) == ((), Level.HIGH, ("system.power.*",))


def test_every_reason_of_a_failure_is_explained() -> None:
    page = text_of("docs/man/aiosd.8.md")
    others = {
        Reason.CANCELED, Reason.USER_REQUEST, Reason.PARENT_CANCELED,  # of canceled tasks
        Reason.RESULT, Reason.PROTOCOL,  # of no failure
    }  # fmt: skip
    explained = {
        word for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for word in row.strip("`").split("`, `")
    }
    assert explained == {reason.value for reason in Reason if reason not in others}


def test_the_program_s_environment_is_documented() -> None:
    page = text_of("docs/man/aios.capability.5.md")
    source = Path(environment.__code__.co_filename).read_text(encoding="utf-8")
    named = set(re.findall(r'"(AIOS_[A-Z_]+)":', source)) | {"AIOS_TASK_FD", "AIOS_ATTEMPT"}
    assert len(named) == 8
    assert {name for name in named if f"*${name}*" not in page} == set()


def verbs_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Names and parsers of the verbs under a command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def test_every_verb_and_option_of_aios_task_is_documented() -> None:
    page = text_of("docs/man/aios-task.1.md").replace("\\", "")
    tree = command._parser(["worker"])
    words = dict(verbs_of(tree))
    words |= {f"worker {name}": parser for name, parser in verbs_of(words.pop("worker"))}
    assert len(words) > 15
    for verb, parser in words.items():
        assert re.search(rf"\*\*{verb}\*\*|\*\*{verb.replace(' ', '[*]* [*]*')}\*\*", page), verb
        for action in parser._actions:
            if action.help is not argparse.SUPPRESS and action.dest != "help":
                assert all(f"**{option}**" in page for option in action.option_strings), (verb, action.option_strings)


def test_the_session_of_the_readme_is_one_of_the_demo() -> None:
    """What is typed there is what `tests/demo` types, and the capabilities are those of the pack."""
    session = re.split(r"<!-- session: .*-->", text_of("README.md"))[1]
    demo = text_of("tests/demo")
    typed = re.findall(r"(?:alice\$|root#) (.*)", session)
    assert len(typed) == 7
    for line in typed:
        assert re.sub(r"aios-task-run-\w+\.scope", "$scope", line) in demo
    pack = [tomllib.loads(path.read_text("utf-8")) for path in sorted((ROOT / "packaging/capabilities.d").iterdir())]
    listed = [re.split(r" {2,}", line) for line in session.partition("LEVEL     TITLE\n")[2].splitlines()]
    assert listed[: len(pack)] == [[each["id"], each["level"], each["title"]] for each in pack]
