"""Emergency stops in force: who may start nothing. In memory for every decision, in a small file for the next start.

Not in the database, because they must hold when that is stuck. The file's space is taken in advance, so that a full
disk cannot keep a stop from being written. A file that cannot be read counts as a stop of the machine: whoever manages
it lifts that.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

from aiosd.errors import AiosError, ErrorKind

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject

FILE = "emergency"
FILE_BYTES = 16 * 1024
MAX_USERS = 512
"""Users that can be stopped one by one; beyond it the machine is."""

_log = logging.getLogger(__name__)


class Stops:
    """What is stopped, and by whom. Read from any thread; changed on the loop only."""

    def __init__(self) -> None:
        """Nothing is stopped."""
        self._machine_by: int | None = None
        self._users: dict[int, int] = {}

    def covers(self, uid: int) -> bool:
        """Whether tasks of this user may not start."""
        return self._machine_by is not None or uid in self._users

    @property
    def any(self) -> bool:
        """Whether anything is stopped."""
        return self._machine_by is not None or bool(self._users)

    def refuse(self, uid: int) -> None:
        """Raise the refusal for a user who may start nothing."""
        if self.covers(uid):
            scope = "machine" if self._machine_by is not None else "user"
            raise AiosError(
                ErrorKind.PERMISSION_DENIED, "an emergency stop is in force; nothing starts until it is lifted",
                reason="emergency", data={"scope": scope},
            )  # fmt: skip

    def stop(self, uid: int | None, by: int) -> None:
        """Stop a user, or everybody (None). What an administrator has stopped stays the administrator's to lift, also
        when its user stops it once more."""
        if uid is None or (uid not in self._users and len(self._users) >= MAX_USERS):
            self._machine_by = by
        elif self._users.get(uid, uid) == uid:
            self._users = {**self._users, uid: by}

    def lift(self, uid: int | None) -> bool:
        """End the stop of a user, or of the machine (None); whether there was one."""
        if uid is None:
            was = self._machine_by is not None
            self._machine_by = None
            return was
        was = uid in self._users
        self._users = {user: by for user, by in self._users.items() if user != uid}
        return was

    def stopped_by(self, uid: int | None) -> int | None:
        """Who stopped that user, or the machine (None); None when nobody did."""
        return self._machine_by if uid is None else self._users.get(uid)

    def view(self) -> JsonObject:
        """For `service.status`."""
        return {"machine": self._machine_by is not None, "users": [*sorted(self._users)]}

    def encoded(self) -> bytes:
        """For the file: a line of JSON, padded to the file's size."""
        users = {str(user): by for user, by in self._users.items()}
        text = json.dumps({"version": 1, "machine_by": self._machine_by, "users": users})
        return text.encode().ljust(FILE_BYTES - 1) + b"\n"

    def decode(self, data: bytes) -> None:
        """Take over what the file says; raises ValueError."""
        fields = json.loads(data)
        try:
            if fields["version"] != 1:
                raise ValueError("unknown version")
            machine = fields["machine_by"]
            users = {int(user): int(by) for user, by in fields["users"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from None
        self._machine_by = None if machine is None else int(machine)
        self._users = users


def load(path: Path, stops: Stops) -> None:
    """Read the file into `stops`, or make it with its space taken. Blocks; raises OSError when it cannot be made."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        save(path, stops)
        return
    except OSError as error:
        _log.error("The emergency stops cannot be read (%s): nothing starts until that of the machine is lifted", error)
        stops.stop(None, 0)
        return
    try:
        stops.decode(data)
    except ValueError as error:
        _log.error("The emergency stops are damaged (%s): nothing starts until that of the machine is lifted", error)
        stops.stop(None, 0)


def save(path: Path, stops: Stops) -> None:
    """Write them durably, over what is there. Blocks; raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.pwrite(fd, stops.encoded(), 0)
        os.fdatasync(fd)
    finally:
        os.close(fd)
