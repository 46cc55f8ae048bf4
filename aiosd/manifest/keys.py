"""The table of manifest keys. The parser, `aiosctl capability check` and the man page's list are all made from it.

One row a key: where it stands, how it is read, what holds when it is not there, at which levels it may stand, and the
text of the man page. To add a key, add a row to `KEYS` and use it in `parse.py`; nothing else lists keys.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from aiosd.manifest import values
from aiosd.model.later import dataclass
from aiosd.model.manifest import HomeView, Identity, Network, OnFailure, Pausable, Protocol, Recovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiosd.model.jsontext import JsonObject
    from aiosd.model.status import Level

T_co = TypeVar("T_co", covariant=True)


class TomlType(StrEnum):
    """What an author writes, in the words of https://toml.io/en/v1.0.0."""

    STRING = "string"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    ARRAY = "array of strings"
    TABLE = "table"
    SIZE = "size"
    SPAN = "time span"
    PERCENT = "percentage"
    MIXED = "false or string"


class Applies(StrEnum):
    """At which levels a key may stand, or how far it may go there."""

    ALWAYS = "any level"
    TIGHTER = "below critical never looser than the level's"
    HIGH = "levels high and critical only"


@dataclass(frozen=True, slots=True)
class Key(Generic[T_co]):
    """One row. `name` is dotted for keys inside tables; `default` is the value when the key is absent "
    "(None: see text)."""

    name: str
    type: TomlType
    parse: Callable[[object], T_co]
    default_text: str
    help: str
    applies: Applies = Applies.ALWAYS
    required: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """The tables on the way and the key itself."""
        return tuple(self.name.split("."))


LEVEL_DEFAULT = "the level's"

ID = Key(
    "id",
    TomlType.STRING,
    values.identifier,
    "",
    "The name callers use, dotted and lower case (`system.info.read`), at most 128 characters. The file must be called "
    "the same, with `.toml` after it.",
    required=True,
)
TITLE = Key(
    "title",
    TomlType.STRING,
    values.title,
    "",
    "What it does, in a few words, for lists and for the dialog that asks a person. One line, at most 128 characters.",
    required=True,
)
DESCRIPTION = Key(
    "description",
    TomlType.STRING,
    values.description,
    "",
    "What it does, what it needs and what it gives, in sentences. Line breaks become spaces; at most 2048 characters.",
    required=True,
)
LEVEL: Key[Level] = Key(
    "level",
    TomlType.STRING,
    values.level,
    "",
    '`"public"`, `"low"`, `"medium"`, `"high"` or `"critical"`: who is asked before it runs, and what '
    "the program itself "
    "may do. See LEVELS.",
    required=True,
)
EXEC = Key(
    "exec",
    TomlType.ARRAY,
    values.argv,
    "",
    "The program, by absolute path, and its arguments. There is no shell and no word is split. An "
    "element that is exactly "
    "`{name}` becomes the caller's argument of that name, as one element; `name` must be a string, "
    "number or boolean of "
    "*input* that is required or has a default.",
    required=True,
)
USER: Key[tuple[Identity, str | None]] = Key(
    "user",
    TomlType.STRING,
    values.user,
    LEVEL_DEFAULT,
    'As whom the program runs: `"dynamic"` (a user id that exists only for this run), `"caller"` (who '
    "asked for the task), "
    "or the name of a user, which only the levels high and critical may give. Level critical has no default: say it.",
    Applies.TIGHTER,
)
NETWORK: Key[Network] = Key(
    "network",
    TomlType.STRING,
    values.choice(Network),
    LEVEL_DEFAULT,
    '`"none"` (a network of its own with nothing but loopback), `"netlink"` (may read the host\'s '
    "interfaces, addresses and "
    'routes, but open no connection; allowed at every level) or `"host"`.',
    Applies.TIGHTER,
)
HOME: Key[HomeView] = Key(
    "home",
    TomlType.STRING,
    values.choice(HomeView),
    LEVEL_DEFAULT,
    'What the program sees of the home directories: `"none"`, `"read-only"` or `"read-write"`.',
    Applies.TIGHTER,
)
READ_WRITE_PATHS = Key(
    "read_write_paths",
    TomlType.ARRAY,
    values.paths,
    "empty",
    "Absolute paths that are writable although the rest of the system is read-only. File permissions apply as ever. "
    'At level critical `["/"]` leaves the whole system as it is.',
    Applies.HIGH,
)
CONCURRENCY = Key(
    "concurrency",
    TomlType.INTEGER,
    values.integer(1, 1000),
    "the daemon's",
    "How many tasks of this capability may run at once. `max_tasks_per_tool` of **aiosd.conf**(5) applies as well.",
)
PAUSABLE: Key[Pausable] = Key(
    "pausable",
    TomlType.MIXED,
    values.pausable,
    '"freeze"',
    'How a task is paused: `"freeze"` (the kernel stops its processes), `"cooperative"` (the program is '
    "told and stops at a "
    "safe place), or `false`.",
)
PROTOCOL: Key[Protocol] = Key(
    "protocol",
    TomlType.STRING,
    values.choice(Protocol),
    '"plain"',
    '`"chunks"`: the program speaks the chunk protocol, and soon: one that sends no chunk within '
    "*stream_first_frame_timeout* of **aiosd.conf**(5) is stopped, and its task fails with reason "
    '`first-frame-timeout`. `"plain"`: it may speak it and need not.',
)
CANCELABLE = Key("cancelable", TomlType.BOOLEAN, values.boolean, "true", "Whether a running task may be canceled.")
CANCEL_GRACE = Key(
    "cancel_grace",
    TomlType.SPAN,
    values.time_span,
    '"5s"',
    "How long a canceled program has to end by itself before everything in its scope is killed.",
)
RECOVERY: Key[Recovery] = Key(
    "recovery",
    TomlType.STRING,
    values.choice(Recovery),
    '"fail"',
    'What becomes of a run that was lost, by a reboot for instance: `"retry"` (only where *idempotent* '
    'is true), `"fail"`, or '
    '`"ask"` (a person decides).',
)
IDEMPOTENT = Key(
    "idempotent",
    TomlType.BOOLEAN,
    values.boolean,
    "false",
    "Whether running it twice does no more than running it once. Only then is it ever run again without being asked. A "
    "caller who gives a task several attempts has asked: they are used whatever is said here (see *max_attempts*).",
)
TIMEOUT = Key(
    "timeout",
    TomlType.SPAN,
    values.time_span,
    "none",
    "How long a run may take. systemd ends it then, even when the daemon is down. A caller may ask for "
    "less, never for more.",
)
ON_FAILURE: Key[OnFailure] = Key(
    "on_failure",
    TomlType.STRING,
    values.choice(OnFailure),
    '"fail"',
    'After the last attempt: `"fail"`, or `"escalate"` (the task waits as blocked for a person\'s decision).',
)
ESTIMATED_DURATION = Key(
    "estimated_duration",
    TomlType.SPAN,
    values.time_span,
    "unknown",
    "How long a run usually takes, for people who plan.",
)
INPUT: Key[JsonObject] = Key(
    "input",
    TomlType.TABLE,
    values.table,
    "no arguments",
    "The JSON Schema (draft 2020-12) of the arguments, written as TOML. Its *type* must be `object`. "
    "References stay inside "
    'the schema (`"#/$defs/…"`). Write `additionalProperties = false`, so that a misspelt argument is refused.',
)
RESULT: Key[JsonObject] = Key(
    "result",
    TomlType.TABLE,
    values.table,
    "anything",
    "The JSON Schema of the result. A task whose result does not fit fails with reason `invalid-result`.",
)
MEMORY_MAX = Key(
    "limits.memory_max",
    TomlType.SIZE,
    values.size,
    LEVEL_DEFAULT,
    "Above this the kernel ends the run, with reason `oom-kill`. *MemoryMax=* of **systemd.resource-control**(5).",
    Applies.TIGHTER,
)
MEMORY_HIGH = Key(
    "limits.memory_high",
    TomlType.SIZE,
    values.size,
    "none",
    "Above this the run is slowed down and its memory reclaimed. *MemoryHigh=*. At most *memory_max*.",
    Applies.TIGHTER,
)
CPU_QUOTA = Key(
    "limits.cpu_quota",
    TomlType.PERCENT,
    values.cpu_quota,
    LEVEL_DEFAULT,
    'Processor time in percent of one CPU: `"20%"`, `"200%"`. *CPUQuota=*.',
    Applies.TIGHTER,
)
TASKS_MAX = Key(
    "limits.tasks_max",
    TomlType.INTEGER,
    values.integer(2, 1 << 20),
    LEVEL_DEFAULT,
    "How many processes and threads there may be, the supervising one included. *TasksMax=*.",
    Applies.TIGHTER,
)
IO_WEIGHT = Key(
    "limits.io_weight",
    TomlType.INTEGER,
    values.integer(1, 10000),
    "100",
    "Share of disk bandwidth against others. *IOWeight=*. Below critical at most 100.",
    Applies.TIGHTER,
)
CPU_WEIGHT = Key(
    "limits.cpu_weight",
    TomlType.INTEGER,
    values.integer(1, 10000),
    "100",
    "Share of processor time against others. *CPUWeight=*. Below critical at most 100.",
    Applies.TIGHTER,
)
OPEN_FILES = Key(
    "limits.open_files",
    TomlType.INTEGER,
    values.integer(16, 1 << 20),
    LEVEL_DEFAULT,
    "Open files of each process. *LimitNOFILE=* of **systemd.exec**(5).",
    Applies.TIGHTER,
)
SCRATCH_MAX = Key(
    "limits.scratch_max",
    TomlType.SIZE,
    values.size,
    LEVEL_DEFAULT,
    "Size of the scratch directory, which is the program's working directory and its *$TMPDIR*.",
    Applies.TIGHTER,
)
LOG_MAX = Key(
    "limits.log_max",
    TomlType.SIZE,
    values.size,
    LEVEL_DEFAULT,
    "How much of each of standard output and standard error is kept. What is beyond is counted and dropped.",
    Applies.TIGHTER,
)
MAX_ATTEMPTS = Key(
    "retry.max_attempts",
    TomlType.INTEGER,
    values.integer(1, 100),
    "1",
    "How often a task is tried, the first time included. More than 1 only where *idempotent* is true. "
    "A caller's own *retry.max_attempts* replaces it, and holds for every capability: after a failure of its own the "
    "program is then run again even if that repeats what it did. What becomes of runs that were lost is *recovery*'s "
    "to say.",
)
RETRY_DELAY = Key(
    "retry.delay", TomlType.SPAN, values.time_span, '"1s"', "How long to wait before a task is tried again."
)

KEYS: tuple[Key[object], ...] = (
    *(ID, TITLE, DESCRIPTION, LEVEL, EXEC, USER, NETWORK, HOME, READ_WRITE_PATHS, CONCURRENCY),
    *(PAUSABLE, PROTOCOL, CANCELABLE, CANCEL_GRACE, RECOVERY, IDEMPOTENT, TIMEOUT, ON_FAILURE, ESTIMATED_DURATION),
    *(INPUT, RESULT),
    *(MEMORY_MAX, MEMORY_HIGH, CPU_QUOTA, TASKS_MAX, IO_WEIGHT, CPU_WEIGHT, OPEN_FILES, SCRATCH_MAX, LOG_MAX),
    *(MAX_ATTEMPTS, RETRY_DELAY),
)
"""Every key there is, in the order of the man page."""

SECTIONS = frozenset(key.path[0] for key in KEYS if len(key.path) > 1)
"""Tables that hold keys of ours (`limits`, `retry`); `input` and `result` are schemas, so what is in them is not."""
