"""Objects whose references are not counted: the fork server's, so that a shim does not copy them by looking at them.

Standard library only. A reference count is in the object, so using an object writes to its page, and a forked process
copies that page. PEP 683 ("Immortal Objects", Python 3.12) names this use: an object with the count that None has is
not counted any more, and never freed. CPython makes only its own constants so; this does it to everything that there
is, from outside, which is sound for a process that ends by _exit(2) and whose objects of before the fork are all needed
until then. Where the interpreter is not known to work so, nothing is changed: a shim then has more memory of its own.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from array import array
from types import CodeType

_IMMORTAL = 0xFFFFFFFF
"""The low half of ob_refcnt that stops the count: this very value (Include/object.h, `Py_INCREF`)."""

_NOT_COUNTED = 1 << 31
"""From here up an object is immortal (`_Py_IsImmortal`)."""

_SEEN = 1 << 30

_KNOWN = ((3, 12), (3, 13))
"""Tried. The header of an object is another one in 3.14."""


def _count(address: int) -> ctypes.c_uint32:
    """The low half of the reference count of the object there, on a machine whose low half comes first."""
    return ctypes.c_uint32.from_address(address)


def is_known() -> bool:
    """Whether this interpreter keeps its counts where and as this module thinks."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in _KNOWN:
        return False
    if "t" in sys.abiflags or sys.byteorder != "little" or sys.maxsize < 2**32:  # counts per thread, or elsewhere
        return False
    probe = [object()]
    counted = _count(id(probe)).value == sys.getrefcount(probe) - 1
    return counted and all(_count(id(item)).value >= _NOT_COUNTED for item in (None, True, 0, ""))


def _parts(item: object) -> list[object]:
    """What an object refers to. The collector does not look into code (Objects/codeobject.c has no tp_traverse)."""
    if not isinstance(item, CodeType):
        return gc.get_referents(item)
    return [
        item.co_consts, item.co_names, item.co_filename, item.co_name, item.co_qualname, item.co_linetable,
        item.co_exceptiontable,
    ]  # fmt: skip


def make_immortal() -> int:
    """Make everything so that the collector can find, and what that refers to; how many objects that were.

    0 where `is_known` says no. To be called once, before the first fork and with nobody else running. Where the walk
    has been it leaves a count that is too large to be true, so that it needs little memory of its own.
    """
    if not is_known():
        return 0
    todo: list[object] = gc.get_objects()
    constants: set[int] = set()
    found = array("Q")
    while todo:
        item = todo.pop()
        address = id(item)
        count = _count(address)
        if count.value < _SEEN // 2:
            count.value = _SEEN
            found.append(address)
        elif count.value < _NOT_COUNTED or address in constants:
            continue
        else:
            constants.add(address)
        todo += _parts(item)
    for address in found:
        _count(address).value = _IMMORTAL
    return len(found)
