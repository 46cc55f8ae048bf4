"""One user of the soak, inside the box: random operations over the JSON-RPC door until the time is over.

`python3 -m tests.soak.user SEED SECONDS`. What was answered is a promise: at the end it prints one JSON object with the
tasks that were promised, how many calls were made, how many were refused (by error name) and the longest silence.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from http.client import HTTPException

from aiosd.client.messages import CallError, ProtocolError
from aiosd.client.plain import Client

PAUSE = 0.05
"""Seconds between two operations on average."""


class User:
    """Somebody with a memory of what was promised."""

    def __init__(self, seed: int) -> None:
        """`seed`: of the choices."""
        self.chance = random.Random(seed)  # noqa: S311  choices that can be made again, not secrets
        self.client = Client(timeout=30.0)
        self.promised: list[str] = []
        self.refused: Counter[str] = Counter()
        self.calls = 0
        self.silence = 0.0

    def do(self, method: str, **params: object) -> dict[str, object]:
        """One call; {} when it was refused or its daemon died under it."""
        begun = time.monotonic()
        self.calls += 1
        try:
            return dict(self.client.call(method, params))  # type: ignore[arg-type]  # JSON by construction
        except CallError as error:
            self.refused[error.error_id] += 1
        except (OSError, HTTPException, ProtocolError):
            self.refused["died"] += 1
            self.client.close()
            time.sleep(0.05)
        finally:
            self.silence = max(self.silence, time.monotonic() - begun)
        return {}

    def create(self) -> None:
        """A task of a random kind."""
        seconds = self.chance.choice((0, 0, 0.1, 0.5, 2))
        kind, arguments = self.chance.choice((
            ("test.sleep", {"seconds": seconds}), ("test.talk", {"count": self.chance.randrange(1, 8)}),
            ("test.fail", {"status": 3}), ("test.sleep", {"seconds": seconds}),
        ))  # fmt: skip
        options = {"async": True, "priority": self.chance.choice(("normal", "high"))}
        made = self.do("aios/task.create", capability_id=kind, arguments=arguments, options=options)
        if "task_id" in made:
            self.promised.append(str(made["task_id"]))

    def step(self) -> None:
        """One operation."""
        task = self.chance.choice(self.promised[-20:]) if self.promised else None
        choice = self.chance.random()
        if task is None or choice < 0.45:
            self.create()
        elif choice < 0.65:
            self.do("aios/task.get", task_id=task)
        elif choice < 0.75:
            self.do("aios/task.cancel", task_id=task)
        elif choice < 0.82:
            self.do("aios/task.pause", task_id=task)
            self.do("aios/task.resume", task_id=task)
        elif choice < 0.92:
            self.do("aios/task.list", pagination={"limit": 20})
        else:
            self.do("aios/service.status")


def main() -> None:
    """Be a user."""
    user, deadline = User(int(sys.argv[1])), time.monotonic() + float(sys.argv[2])
    while time.monotonic() < deadline:
        with suppress(KeyError):
            user.step()
        time.sleep(user.chance.random() * 2 * PAUSE)
    print(json.dumps({
        "promised": user.promised, "calls": user.calls, "refused": dict(user.refused), "silence": user.silence,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
