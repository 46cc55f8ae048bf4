"""What was read since the last write, so that asking again while nothing changes costs no read.

Clients poll. An answer is kept only if no write was on its way at any moment while it was read, and the first write
that is submitted throws all of them away: what is answered here is what a read would find. It is used on the loop only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

MOST = 64
"""Answers that are kept."""
LARGEST = 16 * 1024
"""Weight of one of them, in about as many bytes of JSON: together they are a megabyte or two."""


class Glances:
    """The kept answers."""

    def __init__(self) -> None:
        """Nothing is kept."""
        self._kept: OrderedDict[Hashable, object] = OrderedDict()
        self.generation = 0
        """Counts the beginnings and ends of writes."""

    def changed(self) -> None:
        """A write begins or has ended."""
        self.generation += 1
        self._kept.clear()

    def get(self, key: Hashable) -> object | None:
        """What is kept under that key."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: Hashable, answer: object) -> None:
        """Keep what was just read, unless it is large."""
        if answer is None or weight(answer) > LARGEST:
            return
        self._kept[key] = answer
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)


def weight(value: object, most: int = LARGEST) -> int:
    """About how many bytes of JSON a value is; counting stops beyond `most`."""
    total, waiting = 0, [value]
    while waiting and total <= most:
        one = waiting.pop()
        if isinstance(one, str):
            total += len(one)
        elif isinstance(one, Mapping):
            waiting.extend(one.values())
            total += sum(map(len, one)) + 8
        elif isinstance(one, list):
            waiting.extend(one)
            total += 8
        else:
            total += 8
    return total
