"""dbus/*.xml as data: what methods and signals take and give, and the options that their comments name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path(__file__).parents[3] / "dbus"
_OPTION = re.compile(r"(\w+) \((as|[subth])\b")


@dataclass(frozen=True)
class Method:
    interface: str
    name: str
    taken: str
    given: str
    options: dict[str, str] = field(default_factory=dict)


def _signature(element: ElementTree.Element, direction: str) -> str:
    return "".join(a.get("type", "") for a in element.findall("arg") if a.get("direction", "out") == direction)


@cache
def methods() -> dict[str, Method]:
    """Every method of both interfaces."""
    found = {}
    for path in FOLDER.glob("*.xml"):
        tree = ElementTree.parse(path, ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True)))  # noqa: S314 - our own file
        for interface in tree.iter("interface"):
            comment = ""
            for element in interface:
                if callable(element.tag):  # a comment
                    comment = element.text or ""
                elif element.tag == "method":
                    name, where = element.get("name", ""), interface.get("name", "")
                    options = dict(_OPTION.findall(comment))
                    found[name] = Method(where, name, _signature(element, "in"), _signature(element, "out"), options)
                    comment = ""
    return found


@cache
def signals() -> dict[str, str]:
    """The signature of every signal."""
    found = {}
    for path in FOLDER.glob("*.xml"):
        for element in ElementTree.parse(path).iter("signal"):  # noqa: S314 - our own file
            found[element.get("name", "")] = _signature(element, "out")
    return found
