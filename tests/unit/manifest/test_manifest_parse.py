"""`parse_manifest`: every key's value and default, every refusal with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.manifest.keys import KEYS
from aiosd.manifest.parse import MAX_BYTES, parse_manifest
from aiosd.manifest.problem import Severity
from aiosd.model.manifest import HomeView, Identity, Limits, Network, OnFailure, Pausable, Recovery, RetryPolicy
from aiosd.model.status import Level
from tests.unit.manifest.texts import RIGHT, accepted, parse, replaced

MIB = 1024 * 1024


def test_the_least_manifest_gets_the_defaults_of_its_level() -> None:
    parsed = parse(RIGHT)
    assert parsed.problems == ()
    capability = parsed.capability
    assert capability is not None
    assert (capability.id, capability.title, capability.level) == ("test.thing.do", "Do a thing", Level.MEDIUM)
    assert capability.exec == ("/usr/bin/true",)
    assert (capability.identity, capability.user) == (Identity.CALLER, None)
    assert (capability.network, capability.home) == (Network.HOST, HomeView.READ_WRITE)
    # 3-permissions, "What a level allows the process itself": 1 GiB, 1 CPU, 128 tasks.
    assert capability.limits.memory_max == 1024 * MIB
    assert capability.limits.cpu_quota_percent == 100
    assert capability.limits.tasks_max == 128
    assert capability.input_schema == {"type": "object", "additionalProperties": False}
    assert capability.pausable is Pausable.FREEZE
    assert capability.cancel_grace_ms == 5000
    assert capability.retry == RetryPolicy(1, 1000)
    assert capability.source == "/etc/aios/capabilities.d/test.thing.do.toml"


def test_every_key_reaches_the_capability() -> None:
    capability = accepted(
        RIGHT.replace('"medium"', '"high"').replace('"/usr/bin/true"', '"/usr/bin/tool", "--", "{name}", "{count}"')
        + """
user = "backup"
network = "none"
home = "read-only"
read_write_paths = ["/srv/backup"]
concurrency = 2
pausable = "cooperative"
cancelable = false
cancel_grace = "1min 30s"
recovery = "retry"
idempotent = true
timeout = 2.5
on_failure = "escalate"
estimated_duration = "500ms"
[limits]
memory_max = "256M"
memory_high = 134217728
cpu_quota = "20%"
tasks_max = 10
io_weight = 50
cpu_weight = 20
open_files = 64
scratch_max = "8M"
log_max = "64K"
[retry]
max_attempts = 3
delay = "2s"
[input]
type = "object"
additionalProperties = false
required = ["name"]
properties = { name = { type = "string" }, count = { type = "integer", default = 1 } }
[result]
type = "object"
"""
    )
    assert (capability.identity, capability.user) == (Identity.NAMED, "backup")
    assert (capability.network, capability.home) == (Network.NONE, HomeView.READ_ONLY)
    assert capability.read_write_paths == ("/srv/backup",)
    assert (capability.concurrency, capability.pausable, capability.cancelable) == (2, Pausable.COOPERATIVE, False)
    assert (capability.cancel_grace_ms, capability.timeout_ms) == (90_000, 2500)
    assert (capability.recovery, capability.idempotent) == (Recovery.RETRY, True)
    assert (capability.on_failure, capability.estimated_duration_ms) == (OnFailure.ESCALATE, 500)
    assert capability.limits == Limits(256 * MIB, 128 * MIB, 20, 10, 50, 20, 64, 8 * MIB, 64 * 1024)
    assert capability.retry == RetryPolicy(3, 2000)
    assert capability.result_schema == {"type": "object"}


PROPERTY_X = RIGHT + '[input]\ntype = "object"\n[input.properties.x]\n'

REFUSED = [
    # text, key, line, words of the reason
    (replaced("id", ""), "id", None, "is missing"),
    (replaced("id", 'id = "Test.Thing"'), "id", 1, "must look like"),
    (replaced("id", 'id = "single"'), "id", 1, "must look like"),
    (replaced("id", 'id = "a.b\\n"'), "id", 1, "must look like"),
    (replaced("id", f'id = "a.{"b" * 127}"'), "id", 1, "128"),
    (replaced("id", "id = 3"), "id", 1, "must be a string"),
    (replaced("id", 'id = "other.thing"'), "id", 1, "the file must be called other.thing.toml"),
    (replaced("title", 'title = ""'), "title", 2, "must not be empty"),
    (replaced("title", 'title = "a\\u001b[31m"'), "title", 2, "control characters"),
    (replaced("title", 'title = "a\\u202eb"'), "title", 2, "control characters"),
    (replaced("title", f'title = "{"x" * 129}"'), "title", 2, "at most 128"),
    (replaced("description", f'description = "{"x" * 2049}"'), "description", 3, "at most 2048"),
    (replaced("description", 'description = "bell \\u0007"'), "description", 3, "control characters"),
    (replaced("level", 'level = "Medium"'), "level", 4, '"public", "low", "medium", "high", "critical"'),
    (replaced("level", "level = 2"), "level", 4, "must be one of"),
    (replaced("exec", "exec = []"), "exec", 5, "must name a program"),
    (replaced("exec", 'exec = "/usr/bin/true"'), "exec", 5, "list of strings"),
    (replaced("exec", 'exec = ["true"]'), "exec", 5, "absolute path"),
    (replaced("exec", 'exec = ["/usr/../bin/true"]'), "exec", 5, "absolute path"),
    (replaced("exec", 'exec = ["{program}"]'), "exec", 5, "absolute path"),
    (replaced("exec", 'exec = ["/usr/bin/x", "a\\u0000"]'), "exec", 5, "NUL"),
    (replaced("exec", 'exec = ["/usr/bin/x", "{name}"]'), "exec", 5, "{name} is not a property of [input]"),
    (RIGHT + 'user = "root"\n', "user", 6, 'level medium may not run as "named"'),
    (RIGHT + 'user = "Bad User"\n', "user", 6, "the name of a system user"),
    (RIGHT + 'network = "internet"\n', "network", 6, '"none", "netlink", "host"'),
    (RIGHT + 'home = "write"\n', "home", 6, '"read-only"'),
    (RIGHT + 'read_write_paths = ["/srv"]\n', "read_write_paths", 6, "only high and critical"),
    (RIGHT + 'read_write_paths = ["srv"]\n', "read_write_paths", 6, "absolute path"),
    (RIGHT + "concurrency = 0\n", "concurrency", 6, "from 1 to 1000"),
    (RIGHT + "concurrency = true\n", "concurrency", 6, "whole number"),
    (RIGHT + "pausable = true\n", "pausable", 6, 'false, "freeze" or "cooperative"'),
    (RIGHT + 'cancelable = "no"\n', "cancelable", 6, "true or false"),
    (RIGHT + 'cancel_grace = "5 fortnights"\n', "cancel_grace", 6, "time span"),
    (RIGHT + 'timeout = ""\n', "timeout", 6, "time span"),
    (RIGHT + "timeout = 0\n", "timeout", 6, "at least 1ms"),
    (RIGHT + "timeout = inf\n", "timeout", 6, "at most 366 days"),
    (RIGHT + "timeout = nan\n", "timeout", 6, "at least 1ms"),
    (RIGHT + 'timeout = "9999999999d"\n', "timeout", 6, "at most 366 days"),
    (RIGHT + 'recovery = "retry"\n', "recovery", 6, "idempotent"),
    (RIGHT + 'on_failure = "panic"\n', "on_failure", 6, '"fail", "escalate"'),
    (RIGHT + "limits = 3\n", "limits", 6, "must be a table"),
    (RIGHT + '[limits]\nmemory_max = "lots"\n', "limits.memory_max", 7, "must be a size"),
    (RIGHT + "[limits]\nmemory_max = -1\n", "limits.memory_max", 7, "at least 4K"),
    (RIGHT + '[limits]\nmemory_max = "2G"\n', "limits.memory_max", 7, "level medium allows at most 1G"),
    (RIGHT + '[limits]\ncpu_quota = "150%"\n', "limits.cpu_quota", 7, "at most 100%"),
    (RIGHT + '[limits]\ncpu_quota = "0%"\n', "limits.cpu_quota", 7, "percentage"),
    (RIGHT + "[limits]\ncpu_quota = 20\n", "limits.cpu_quota", 7, "percentage"),
    (RIGHT + "[limits]\ntasks_max = 129\n", "limits.tasks_max", 7, "at most 128"),
    (RIGHT + "[limits]\nio_weight = 101\n", "limits.io_weight", 7, "at most 100"),
    (RIGHT + "[limits]\ncpu_weight = 500\n", "limits.cpu_weight", 7, "at most 100"),
    (RIGHT + '[limits]\nmemory_max = "64M"\nmemory_high = "65M"\n', "limits.memory_high", 8, "memory_max"),
    (RIGHT + "\n[retry]\n\nmax_attempts = 2\n", "retry.max_attempts", 9, "idempotent"),
    (RIGHT + "input = 1\n", "input", 6, "must be a table"),
    (RIGHT + '[input]\ntype = "array"\n', "input.type", 7, '"object"'),
    (RIGHT + '[input]\ntype = "object"\nsince = 2026-01-01\n', "input", 6, "dates"),
    (RIGHT + '[input]\ntype = "object"\nmaxProperties = inf\n', "input", 6, "not finite"),
    (RIGHT + '[input]\ntype = "object"\nrequired = "x"\n', "input.required", 8, "an array"),
    (PROPERTY_X + 'type = "strin"\n', "input.properties.x.type", 9, "fits none"),
    (PROPERTY_X + '"$ref" = "https://example.org/s"\n', "input.properties.x.$ref", 9, "inside"),
    (PROPERTY_X + '"$ref" = "#/$defs/no"\n', "input.properties.x.$ref", 9, "leads nowhere"),
    (PROPERTY_X + 'pattern = "("\n', "input.properties.x.pattern", 9, "regular expression"),
    (RIGHT + "title = 'again'\n", "", None, "not TOML"),
    (RIGHT + "this is not toml\n", "", 6, "not TOML"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key", "line", "words"), REFUSED)
def test_a_wrong_value_refuses_the_file_and_names_key_line_and_reason(
    text: str, key: str, line: int | None, words: str
) -> None:
    parsed = parse(text)
    assert parsed.capability is None
    errors = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
    assert [problem.key for problem in errors] == [key]
    assert words in errors[0].message
    if line is not None:
        assert errors[0].line == line


def test_all_problems_of_a_file_are_told_at_once() -> None:
    parsed = parse(replaced("title", "title = 1") + "concurrency = 0\nbogus = 1\n")
    assert [(problem.key, problem.line, problem.severity) for problem in parsed.problems] == [
        ("bogus", 7, Severity.WARNING),
        ("title", 2, Severity.ERROR),
        ("concurrency", 6, Severity.ERROR),
    ]
    assert str(parsed.problems[1]) == "/etc/aios/capabilities.d/test.thing.do.toml:2: error: title: must be a string"


def test_unknown_keys_are_ignored_with_a_warning() -> None:
    parsed = parse(RIGHT + "colour = 'red'\n[limits]\nswap_max = 3\n[future]\nx = 1\n")
    assert parsed.capability is not None
    assert [(problem.key, problem.line) for problem in parsed.problems] == [
        ("colour", 6),
        ("limits.swap_max", 8),
        ("future", 9),
    ]


PLACEHOLDER_SCHEMA = '\n[input]\ntype = "object"\nadditionalProperties = false\n'
PLACEHOLDERS = [
    ('{ type = "array" }', 'required = ["x"]', "must have the type"),
    ("{}", 'required = ["x"]', "must have the type"),
    ('{ type = ["string", "null"] }', 'required = ["x"]', "must have the type"),
    ('{ type = "string" }', "", "must be required in [input] or have a default"),
]


@pytest.mark.parametrize(("schema", "required", "words"), PLACEHOLDERS)
def test_a_placeholder_must_always_be_one_argument(schema: str, required: str, words: str) -> None:
    text = replaced("exec", 'exec = ["/usr/bin/x", "--", "{x}"]')
    parsed = parse(f"{text}{PLACEHOLDER_SCHEMA}{required}\nproperties.x = {schema}\n")
    assert parsed.capability is None
    assert words in parsed.problems[-1].message


def test_a_text_that_could_be_an_option_is_remarked_upon() -> None:
    schema = PLACEHOLDER_SCHEMA + 'required = ["x"]\nproperties.x = { type = "string" }\n'
    bare = parse(replaced("exec", 'exec = ["/usr/bin/x", "{x}"]') + schema)
    assert bare.capability is not None
    assert [problem.severity for problem in bare.problems] == [Severity.WARNING]
    assert "option" in bare.problems[0].message
    assert parse(replaced("exec", 'exec = ["/usr/bin/x", "--", "{x}"]') + schema).problems == ()


def test_a_multi_line_description_becomes_one_line() -> None:
    text = replaced("description", 'description = """\nFirst line,\n\tsecond line.\n"""')
    assert accepted(text).description == "First line, second line."


@pytest.mark.parametrize("text", [b"\xff\xfe", b"id = 'a'\x00", b"#" * (MAX_BYTES + 1)])
def test_what_is_no_text_is_refused_whole(text: bytes) -> None:
    parsed = parse_manifest(text, "x.toml")
    assert parsed.capability is None
    assert parsed.problems[0].severity is Severity.ERROR


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "{b=" * 2000, "[" + "a." * 3000 + "a]"])
def test_deep_nesting_is_refused_and_does_not_crash(text: str) -> None:
    assert parse(text).capability is None


@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    assert parse_manifest(text.encode("utf-8", "surrogatepass"), "x.toml").capability is None


@given(
    st.sampled_from(KEYS),
    st.sampled_from(["1", "-1", "1e400", '"x"', '"5s"', "[]", "[1]", "{}", "{ a = 1 }", "true", "1979-05-27", "nan"]),
)
def test_no_value_of_any_key_raises(key: object, value: str) -> None:
    name = getattr(key, "name", "")
    parse(replaced(name, "") + f"{name} = {value}\n")
