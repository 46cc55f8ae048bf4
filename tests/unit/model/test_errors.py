"""The error table against seed 000's codes and the AIOS family's error ids (design: measured facts)."""

from __future__ import annotations

import re

import pytest

from aiosd.core.outcome import Ending, judge
from aiosd.errors import DBUS_PREFIX, AiosError, ErrorKind, by_dbus_name

# Seed 000, "错误码": code and message, as written there.
SEED_CODES = [
    (-32106, "Task not found"),
    (-32107, "Task already completed"),
    (-32107, "Task already canceled"),
    (-32005, "Task timeout"),
    (-32006, "Task queue full"),
    (-32108, "Invalid task state"),
    (-32002, "Input required"),
    (-32108, "Invalid input"),
]
# JSON-RPC 2.0, section 5.1.
JSON_RPC_CODES = [
    (-32700, "Parse error"),
    (-32600, "Invalid request"),
    (-32601, "Method not found"),
    (-32602, "Invalid params"),
    (-32603, "Internal error"),
]
FAMILY_IDS = [
    (-32001, "AIOS-PERM-DENIED"),
    (-32003, "AIOS-CAP-NOT-FOUND"),
    (-32005, "AIOS-TIMEOUT"),
    (-32007, "AIOS-RESOURCE-BUSY"),
    (-32009, "AIOS-VERSION-MISMATCH"),
    (-32010, "AIOS-SANDBOX-VIOLATION"),
    (-32105, "AIOS-SESSION-NOT-FOUND"),
    (-32106, "AIOS-TASK-NOT-FOUND"),
]


@pytest.mark.parametrize(("code", "message"), SEED_CODES + JSON_RPC_CODES)
def test_every_code_of_the_documents_is_there(code: int, message: str) -> None:
    assert [kind for kind in ErrorKind if (kind.value.code, kind.value.message) == (code, message)]


@pytest.mark.parametrize(("code", "error_id"), FAMILY_IDS)
def test_the_familys_error_ids_keep_their_codes(code: int, error_id: str) -> None:
    assert [kind.value.code for kind in ErrorKind if kind.value.error_id == error_id] == [code]


def test_error_ids_and_names_are_unique() -> None:
    assert len({kind.value.error_id for kind in ErrorKind}) == len(ErrorKind)
    assert len({kind.dbus_name for kind in ErrorKind}) == len(ErrorKind)


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_row_is_well_formed(kind: ErrorKind) -> None:
    assert re.fullmatch(r"AIOS(-[A-Z]+)+", kind.value.error_id)
    # D-Bus specification, "Error names": as interface names, at most 255 characters.
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+", kind.dbus_name)
    assert len(kind.dbus_name) <= 255
    assert kind.dbus_name.startswith("org.aios.TaskManager.Error.")
    assert 0 < kind.value.exit_status < 126, "126 and above belong to the shell"
    assert by_dbus_name(kind.dbus_name) is kind
    # Server errors of JSON-RPC are -32099 to -32000; the seed adds -321xx; the rest is reserved.
    code = kind.value.code
    assert -32099 <= code <= -32000 or -32199 <= code <= -32100 or code in {c for c, _ in JSON_RPC_CODES}


def test_an_unknown_name_is_no_row() -> None:
    assert by_dbus_name(DBUS_PREFIX + "Nothing") is None
    assert by_dbus_name("org.freedesktop.DBus.Error.Failed") is None


def test_the_wire_object_is_the_seeds() -> None:
    # Seed 000's example of a time-out, which says "Timeout" where its table says "Task timeout".
    capability = "compat.browser.search_and_compare"
    ended = judge(Ending(capability, timed_out=True, timeout_ms=30000, elapsed_ms=30500))
    assert ended.error == {
        "code": -32005,
        "message": "Timeout",
        "data": {
            "error_id": "AIOS-TIMEOUT",
            "reason": "timeout",
            "capability_id": capability,
            "timeout_ms": 30000,
            "elapsed_ms": 30500,
        },
    }
    assert AiosError(ErrorKind.TASK_TIMEOUT).wire() == {
        "code": -32005, "message": "Task timeout", "data": {"error_id": "AIOS-TIMEOUT"}
    }  # fmt: skip


def test_the_field_at_fault_is_named() -> None:
    error = AiosError(ErrorKind.INVALID_PARAMS, "must be positive", field="options.timeout_ms", reason="range")
    assert error.text == "Invalid params: options.timeout_ms: must be positive"
    assert error.data() == {
        "error_id": "AIOS-INVALID-PARAMS",
        "details": "must be positive",
        "field": "options.timeout_ms",
        "reason": "range",
    }
