"""Only what a stranger could reach as well may be connected to. Addresses: RFC 6890's registries, and embeddings."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.hooks.addresses import refusal

REFUSED = {
    "127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback",
    "0.0.0.0": "unspecified",  # noqa: S104 - judged, not bound
    "::": "unspecified", "0.1.2.3": "private",
    "10.0.0.1": "private", "172.16.0.1": "private", "192.168.1.1": "private", "100.64.0.1": "private",
    "fd00::1": "private", "192.0.0.8": "private", "198.18.0.1": "private", "2001:db8::1": "private",
    "169.254.169.254": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
    "224.0.0.1": "multicast", "ff02::1": "multicast",
    "240.0.0.1": "reserved", "255.255.255.255": "reserved", "fec0::1": "reserved", "::127.0.0.1": "reserved",
    "fd00:ec2::254": "private", "100.100.100.200": "private",
    "::ffff:127.0.0.1": "loopback", "::ffff:169.254.169.254": "link-local", "64:ff9b::7f00:1": "loopback",
    "64:ff9b::a9fe:a9fe": "link-local", "64:ff9b:1::a00:1": "private", "2002:7f00:1::": "loopback",
    "2001:0:4136:e378:8000:63bf:80ff:fffe": "loopback",
}  # fmt: skip


@pytest.mark.parametrize("address", sorted(REFUSED))
def test_special_addresses_are_refused(address: str) -> None:
    assert refusal(address) == REFUSED[address]


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::101:101", "::ffff:8.8.8.8"]
)
def test_public_addresses_are_not(address: str) -> None:
    assert refusal(address) is None


@pytest.mark.parametrize("text", ["localhost", "127.1", "0x7f000001", "2130706433", "", "1.1.1.1:80"])
def test_what_is_no_address_is_left_to_the_resolver(text: str) -> None:
    assert refusal(text) == "no address"


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_the_same_inside_an_ipv6_one(address: IPv4Address) -> None:
    plain = refusal(str(address))
    for prefix in (IPv6Address("::ffff:0:0"), IPv6Address("64:ff9b::")):
        assert refusal(str(IPv6Address(int(prefix) + int(address)))) == plain
