"""The versions of what the daemon, the launcher and the shims say to each other, and what may change within one.

A shim lives as long as its task, so after an upgrade shims of the old program speak to a new daemon, and after a
rollback shims of the new program to an old one. Within a version

- fields are added, never taken away or given another meaning; who does not know a field ignores it;
- kinds of messages to a shim are added; a shim that does not know one ignores it, and the daemon goes on without an
  answer;
- types of events are added; a daemon that does not know one tells it as a protocol error and goes on.

Anything else is a new version. Who meets a higher version than its own does not guess: an exit record that cannot be
read is a lost run, and the capability's policy says what follows. A daemon speaks to shims of every version before its
own; `tests/fixtures/shim-1` has what the first one said, and both directions are tested with it.

Standard library only.
"""

from __future__ import annotations

LAUNCHER = 1
"""Of the launcher's protocol; `hello` names it."""

SHIM = 1
"""Of the control socket, the event file and the exit record. `run.json` and the exit record name it (`version`), and so
do the shim's first event, `started` (`protocol`), and the daemon's first message, `go` (`version`)."""
