"""Where the service may connect to on a stranger's behalf. Pure; only addresses are judged, never names.

Source: the IANA special-purpose registries (RFC 6890), as `ipaddress` knows them, and what leads round them: IPv4
addresses inside IPv6 ones (mapped, 6to4, Teredo, NAT64) are judged as the IPv4 address that they reach.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
"""RFC 6052 and RFC 8215. In both the last 32 bits are taken for the IPv4 address."""

_PROTOCOLS = (IPv4Network("192.0.0.0/24"), IPv6Network("2001::/23"), IPv6Network("3fff::/20"), IPv6Network("5f00::/16"))
"""Of the same registries, but not in every version of `ipaddress` that we run on."""

_COMPATIBLE = IPv6Network("::/96")
_SITE_LOCAL = IPv6Network("fec0::/10")


def refusal(text: str) -> str | None:
    """Why nothing may be sent to this address (as text, without a port), None when it may."""
    try:
        address = ip_address(text)
    except ValueError:
        return "no address"
    inner = _inside(address)
    return _why(address) if inner is None else _why(inner)


def _inside(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(address, IPv4Address):
        return None
    plain = IPv6Address(int(address))
    if plain.ipv4_mapped is not None:
        return plain.ipv4_mapped
    if any(plain in network for network in _NAT64):
        return IPv4Address(int(plain) & 0xFFFFFFFF)
    if plain.sixtofour is not None:
        return plain.sixtofour
    if plain.teredo is not None:
        return plain.teredo[1]
    return None


def _why(address: IPv4Address | IPv6Address) -> str | None:
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:  # also 169.254.169.254, where clouds keep credentials
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if isinstance(address, IPv6Address):
        plain = IPv6Address(int(address))
        if plain in _COMPATIBLE or plain in _SITE_LOCAL:
            return "reserved"
    if any(address in network for network in _PROTOCOLS if network.version == address.version):
        return "private"
    if address.is_reserved:
        return "reserved"
    if address.is_private or not address.is_global:  # 0.0.0.0/8, 100.64.0.0/10, fd00::/8 and the rest
        return "private"
    return None
