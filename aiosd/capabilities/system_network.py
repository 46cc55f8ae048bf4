"""`system.network.interfaces`: interfaces and their addresses, asked of the kernel by netlink (rtnetlink(7)).

Needs to see the host's network and nothing of what can be reached by it: its manifest says `network = "netlink"`.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Protocol

from pyroute2 import IPRoute

from aiosd.capabilities.program import serve

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.worker import Task

_SCOPES = {0: "global", 200: "site", 253: "link", 254: "host", 255: "nowhere"}
"""rt_scope_t of linux/rtnetlink.h."""
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8


class Message(Protocol):
    """What is used of pyroute2's netlink messages: header fields by name, attributes by their kernel name."""

    def __getitem__(self, field: str) -> int:
        """A field of the fixed header."""

    def get_attr(self, name: str) -> str | int | None:
        """An attribute, or None when the kernel did not send it."""


def work(task: Task) -> JsonObject:
    """Two dumps, joined by the interface's number."""
    addresses: dict[int, list[JsonValue]] = {}
    with IPRoute() as kernel:
        for message in kernel.get_addr():
            text = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
            if text:
                addresses.setdefault(message["index"], []).append(
                    _address(str(text), message["prefixlen"], message["scope"])
                )
        links = {message["index"]: message for message in kernel.get_links()}
    interfaces: list[JsonValue] = [_interface(links[index], addresses.get(index, [])) for index in sorted(links)]
    task.progress(100, f"{len(interfaces)} interfaces")
    return {"interfaces": interfaces}


def _interface(message: Message, addresses: list[JsonValue]) -> dict[str, JsonValue]:
    flags = message["flags"]
    found: dict[str, JsonValue] = {
        "index": message["index"],
        "name": str(message.get_attr("IFLA_IFNAME")),
        "up": bool(flags & _IFF_UP),
        "loopback": bool(flags & _IFF_LOOPBACK),
        "state": str(message.get_attr("IFLA_OPERSTATE") or "UNKNOWN").lower(),
        "mtu": int(message.get_attr("IFLA_MTU") or 0),
        "addresses": addresses,
    }
    mac = message.get_attr("IFLA_ADDRESS")
    if mac and not flags & _IFF_LOOPBACK:
        found["mac"] = str(mac)
    return found


def _address(text: str, prefix: int, scope: int) -> dict[str, JsonValue]:
    address = ip_address(text)
    family = f"inet{address.version if address.version == 6 else ''}"
    return {"address": str(address), "prefix_length": prefix, "family": family, "scope": _SCOPES.get(scope, str(scope))}


def main() -> None:
    """Run as a task."""
    serve(work)


if __name__ == "__main__":
    main()
