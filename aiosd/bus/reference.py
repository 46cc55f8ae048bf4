"""Writes docs/dbus.md from dbus/*.xml, the error table and the operation table.

`python -m aiosd.bus.reference docs/dbus.md`. What stands between the two transcript marks is kept: it is recorded
on a booted system. A test fails when the file is older than its sources.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aiosd.auth.policy import RUN_ACTIONS, Access, Action
from aiosd.bus.connection import MAX_MESSAGE_BYTES
from aiosd.bus.interfaces import Emits, load
from aiosd.bus.members import MEMBERS
from aiosd.bus.peers import Limits
from aiosd.bus.values import MAX_ITEMS, MAX_STRING
from aiosd.core.operations import APPROVAL, MANAGER, OPERATIONS, SESSION, TASK, WORKER
from aiosd.errors import ErrorKind
from aiosd.model.jsontext import MAX_DEPTH, MAX_TEXT_BYTES
from aiosd.store.pages import PAGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiosd.bus.interfaces import Argument, Interface, Method

BEGIN = "<!-- transcript: recorded on a booted system; the generator keeps what stands between these two marks -->"
END = "<!-- end of transcript -->"
_DEFAULTS = Limits()

_INTRODUCTION = f"""# D-Bus interface

<!-- Made by `python -m aiosd.bus.reference docs/dbus.md` from dbus/*.xml; change those, not this file. -->

Bus name `org.aios.TaskManager` on the system bus. The name has no version, the interfaces have: what changes
incompatibly gets a new interface beside the old one.

| object | interface |
|---|---|
| `/org/aios/TaskManager` | `{MANAGER}` |
| `/org/aios/TaskManager/task/<label>` | `{TASK}` |
| `/org/aios/TaskManager/session/<label>` | `{SESSION}` |
| `/org/aios/TaskManager/approval/<label>` | `{APPROVAL}` |
| `/org/aios/TaskManager/worker/u<uid>/<label>` | `{WORKER}` |

Every object also has `org.freedesktop.DBus.Peer`, `.Introspectable` and `.Properties`. There is no ObjectManager: tasks
are found on demand, lists are paged.

**Paths.** A task's label is its id with every `-` written as `_`: `task-01jdx…` is at `…/task/task_01jdx…`. With
`handle_token` the id is known before the call: user 1000 and token `my_token` give `task-u1000-my_token`, at
`…/task/task_u1000_my_token`. So subscribe first, then call.

**Who asks** is the connection that sent the message; no argument says it. A person is asked for a password only when
the message has the flag ALLOW_INTERACTIVE_AUTHORIZATION (`busctl` sets it unless told otherwise).

**Options** (`a{{sv}}`, last) hold what is optional. An unknown name or another type than the one listed is refused, as
`InvalidParams` with `field` = `options.<name>`.

**Bounds.** A JSON text is at most {MAX_TEXT_BYTES // 1024} KiB and nested {MAX_DEPTH} deep, every other string at most
{MAX_STRING} characters, an array or dictionary at most {MAX_ITEMS} entries. At most {_DEFAULTS.per_peer} calls of one
connection are in progress. Of one user {_DEFAULTS.calls.per_user} are worked on at a time, and
{_DEFAULTS.calls.waiting_per_user} more may wait for something (`Wait`, a worker's `Heartbeat`). A connection has
at most {_DEFAULTS.subscriptions_per_peer} subscriptions; all of a user's connections together as many to the same task,
or to more than one. Beyond any of it: `RateLimited`. A page may end before its limit, at about
{PAGE_SIZE >> 20} MiB of what callers have written: `has_more` and the cursor tell. An answer of more than
{MAX_MESSAGE_BYTES >> 20} MiB is refused: `ResourceBusy`, reason `too-large`.

**Leaving the bus** ends a connection's calls that are still being answered (`Wait`, a question to a person) and its
subscriptions.

**In the open.** Everybody on the bus can read broadcast signals, so those carry ids, uid and state only, and
`PropertiesChanged` of a task carries `Status` and `Phase` and merely invalidates the rest. `Event` goes to its
subscriber alone. Progress is told at most four times a second for each task; its last value always is.

## A session with busctl

{BEGIN}
"""


def _access(access: Access) -> str:
    levels = " … ".join((RUN_ACTIONS[min(RUN_ACTIONS)].value, RUN_ACTIONS[max(RUN_ACTIONS)].value.rpartition(".")[2]))
    return {
        Access.PUBLIC: "everyone",
        Access.RUN: f"by the capability's level: `{levels}`",
        Access.VIEW: f"the task's owner; others need `{Action.VIEW_OTHERS.value}`",
        Access.CONTROL: f"the task's owner; others need `{Action.CONTROL_OTHERS.value}`",
        Access.OWN: "the connection whose it is",
        Access.MANAGE: f"`{Action.MANAGE.value}`",
        Access.OWN_OR_MANAGE: f"everyone about themselves; others and the machine need `{Action.MANAGE.value}`",
        Access.APPROVE: f"`{Action.APPROVE.value}`",
        Access.WORKER: f"`{Action.REGISTER_WORKER.value}`",
        Access.AS_WORKER: "the worker: its user, who names its registration or its assignment",
        Access.WEBHOOK: f"`{Action.SUBSCRIBE_WEBHOOK.value}`",
    }[access]


def _prose(comment: str) -> str:
    """A comment of the XML as Markdown: `<id>` is no HTML there."""
    return comment.replace("<", r"\<")


def _arguments(arguments: Sequence[Argument]) -> str:
    return ", ".join(f"{argument.type} {argument.name}" for argument in arguments)


def _method(interface: str, method: Method) -> list[str]:
    operation = OPERATIONS[MEMBERS[interface, method.name].operation]
    gives = f" → ({_arguments(method.outputs)})" if method.outputs else ""
    lines = [
        f"### {method.name}",
        "",
        f"`{method.name}({_arguments(method.inputs)}){gives}`",
        "",
        f"{operation.summary}.",
    ]
    if method.doc:
        lines += ["", method.doc]
    return [*lines, "", f"Who may: {_access(operation.access)}.", ""]


def _interface(interface: Interface) -> list[str]:
    lines = [f"## {interface.name}", "", _prose(interface.doc), ""]
    for method in interface.methods.values():
        lines += _method(interface.name, method)
    if interface.signals:
        lines += ["### Signals", "", "| signal | arguments | |", "|---|---|---|"]
        signals = interface.signals.values()
        lines += [f"| `{one.name}` | `{_arguments(one.arguments)}` | {_prose(one.doc)} |" for one in signals]
        lines.append("")
    lines += [
        "### Properties",
        "",
        "All are read-only.",
        "",
        "| property | type | when it changes | |",
        "|---|---|---|---|",
    ]
    told = {
        Emits.VALUE: "PropertiesChanged with the value",
        Emits.INVALIDATES: "PropertiesChanged, invalidated",
        Emits.CONST: "it does not",
        Emits.NEVER: "no signal",
    }
    lines += [
        f"| `{one.name}` | `{one.type}` | {told[one.emits]} | {_prose(one.doc)} |"
        for one in interface.properties.values()
    ]
    return [*lines, ""]


def _errors() -> list[str]:
    lines = [
        "## Errors",
        "",
        "The first string of an error is for people; the second is a JSON object for programs: `error_id`, and where",
        "they apply `details`, `field` (the argument at fault), `reason` and more. The same table serves JSON-RPC.",
        "",
        "| `org.aios.TaskManager.Error.` | `error_id` | JSON-RPC code | text |",
        "|---|---|---|---|",
    ]
    rows = [kind.value for kind in ErrorKind]
    lines += [f"| `{row.dbus}` | `{row.error_id}` | {row.code} | {row.message} |" for row in rows]
    return [
        *lines,
        "",
        "Mistakes in the call itself have the D-Bus specification's names, `org.freedesktop.DBus.Error.…`:",
        "`UnknownObject`, `UnknownInterface`, `UnknownMethod`, `InvalidArgs`, `UnknownProperty`, `PropertyReadOnly`.",
        "",
    ]


def reference(interfaces: Mapping[str, Interface], transcript: str) -> str:
    """The whole page."""
    lines = [_INTRODUCTION + transcript.strip("\n"), END, ""]
    for name in (MANAGER, TASK, SESSION, APPROVAL, WORKER):
        lines += _interface(interfaces[name])
    return "\n".join([*lines, *_errors()]).rstrip("\n") + "\n"


def transcript_of(page: str) -> str:
    """What stands between the marks of an existing page, "" when there is none."""
    _, mark, rest = page.partition(BEGIN)
    return rest.partition(END)[0].strip("\n") if mark else ""


def main(path: Path) -> None:
    """Write the page, keeping its transcript."""
    old = path.read_text("utf-8") if path.exists() else ""
    path.write_text(reference(load(), transcript_of(old)), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
