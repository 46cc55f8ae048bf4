"""What an approval is bound to: whatever of the request changes, its hash changes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from aiosd.auth.approvals import connection_of, is_own, request_hash
from aiosd.auth.caller import BusSubject, Caller, ProcessSubject
from aiosd.model.manifest import Capability, HomeView, Identity, Limits, Network
from aiosd.model.status import Level

CAPABILITY = Capability(
    "system.power.reboot", "Reboot", "", Level.CRITICAL, ("/usr/bin/true",), Identity.NAMED, "root", Network.HOST,
    HomeView.NONE, (), Limits(), {"type": "object"},
)  # fmt: skip

values = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20)
arguments = st.dictionaries(st.text(max_size=8), values, max_size=4)


@given(one=arguments, other=arguments)
def test_other_arguments_are_another_request(one: dict[str, None], other: dict[str, None]) -> None:
    same = repr(sorted(one.items(), key=str)) == repr(sorted(other.items(), key=str))
    assert (request_hash(CAPABILITY, one, 1000) == request_hash(CAPABILITY, other, 1000)) == same


@given(arguments)
def test_the_order_of_arguments_is_none(given_: dict[str, None]) -> None:
    turned = dict(reversed(given_.items()))
    assert request_hash(CAPABILITY, given_, 1000) == request_hash(CAPABILITY, turned, 1000)


def test_requester_capability_and_manifest_are_bound() -> None:
    hashes = {
        request_hash(CAPABILITY, {}, 1000),
        request_hash(CAPABILITY, {}, 1001),
        request_hash(replace(CAPABILITY, id="system.power.off"), {}, 1000),
        request_hash(replace(CAPABILITY, exec=("/usr/bin/false",)), {}, 1000),
        request_hash(replace(CAPABILITY, user="alice"), {}, 1000),
        request_hash(replace(CAPABILITY, limits=Limits(memory_max=1 << 30)), {}, 1000),
    }
    assert len(hashes) == 6
    assert all(len(one) == 64 for one in hashes)


def test_the_connection_that_asked_is_known_again() -> None:
    first, second = BusSubject(":1.7"), BusSubject(":1.8")
    asked = connection_of(first)
    assert is_own(asked, 1000, Caller(1000, first))
    assert not is_own(asked, 1000, Caller(1000, second))
    assert not is_own(asked, 1000, Caller(0, first))
    process = ProcessSubject(pid=7, start_time=4711, uid=1000, pidfd=3)
    assert is_own(connection_of(process), 1000, Caller(1000, replace(process, pidfd=9)))
    assert not is_own(connection_of(process), 1000, Caller(1000, replace(process, start_time=4712)))
