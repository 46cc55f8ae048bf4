"""What the interfaces are: read once from dbus/*.xml, the source of truth.

The dispatcher checks signatures against this, introspection answers with the very elements of those files, the
reference (docs/dbus.md) is made from it, comments included.
"""

from __future__ import annotations

import sysconfig
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from aiosd.core.operations import APPROVAL, MANAGER, SESSION, TASK, WORKER
from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTALLED = Path("share/dbus-1/interfaces")
PEER = "org.freedesktop.DBus.Peer"
INTROSPECTABLE = "org.freedesktop.DBus.Introspectable"
PROPERTIES = "org.freedesktop.DBus.Properties"
_EMITS = "org.freedesktop.DBus.Property.EmitsChangedSignal"

_COMMENT: object = ElementTree.Comment
"""What a comment has for a tag: a function."""

DOCTYPE = (
    '<!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"\n'
    ' "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">\n'
)

STANDARD_XML = f"""<node>
<interface name="{PEER}">
  <method name="Ping"/>
  <method name="GetMachineId"><arg name="machine_uuid" type="s" direction="out"/></method>
</interface>
<interface name="{INTROSPECTABLE}">
  <method name="Introspect"><arg name="xml_data" type="s" direction="out"/></method>
</interface>
<interface name="{PROPERTIES}">
  <method name="Get">
    <arg name="interface_name" type="s" direction="in"/>
    <arg name="property_name" type="s" direction="in"/>
    <arg name="value" type="v" direction="out"/>
  </method>
  <method name="GetAll">
    <arg name="interface_name" type="s" direction="in"/>
    <arg name="properties" type="a{{sv}}" direction="out"/>
  </method>
  <method name="Set">
    <arg name="interface_name" type="s" direction="in"/>
    <arg name="property_name" type="s" direction="in"/>
    <arg name="value" type="v" direction="in"/>
  </method>
  <signal name="PropertiesChanged">
    <arg name="interface_name" type="s"/>
    <arg name="changed_properties" type="a{{sv}}"/>
    <arg name="invalidated_properties" type="as"/>
  </signal>
</interface>
</node>
"""
"""The interfaces of the D-Bus specification that every object of ours has."""


class Emits(StrEnum):
    """How a change of a property is told (D-Bus specification, EmitsChangedSignal)."""

    VALUE = "true"
    INVALIDATES = "invalidates"
    CONST = "const"
    NEVER = "false"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a method or signal."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Method:
    """A method; `doc` is the comment above it in the file."""

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    doc: str

    @property
    def takes(self) -> str:
        """Signature of what it is given."""
        return "".join(argument.type for argument in self.inputs)

    @property
    def gives(self) -> str:
        """Signature of what it answers."""
        return "".join(argument.type for argument in self.outputs)


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """A signal."""

    name: str
    arguments: tuple[Argument, ...]
    doc: str

    @property
    def signature(self) -> str:
        """Signature of its body."""
        return "".join(argument.type for argument in self.arguments)


@dataclass(frozen=True, slots=True)
class Property:
    """A property; all of ours are read-only."""

    name: str
    type: str
    emits: Emits
    doc: str


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface and its XML element as introspection shows it."""

    name: str
    doc: str
    xml: str
    methods: Mapping[str, Method] = field(default_factory=dict)
    signals: Mapping[str, SignalSpec] = field(default_factory=dict)
    properties: Mapping[str, Property] = field(default_factory=dict)


def _arguments(element: ElementTree.Element, direction: str) -> tuple[Argument, ...]:
    return tuple(
        Argument(arg.get("name", ""), arg.get("type", ""))
        for arg in element.iter("arg")
        if arg.get("direction", "in" if element.tag == "method" else "out") == direction
    )


def _property(element: ElementTree.Element, doc: str) -> Property:
    if element.get("access") != "read":
        raise ValueError(f"property {element.get('name')}: only read-only properties are served")
    emits = [Emits(note.get("value", "")) for note in element.iter("annotation") if note.get("name") == _EMITS]
    return Property(element.get("name", ""), element.get("type", ""), emits[0] if emits else Emits.VALUE, doc)


def _interface(element: ElementTree.Element, doc: str) -> Interface:
    methods: dict[str, Method] = {}
    signals: dict[str, SignalSpec] = {}
    properties: dict[str, Property] = {}
    comment = ""
    for member in list(element):
        name = member.get("name", "")
        if member.tag is _COMMENT:
            comment = " ".join((member.text or "").split())
            element.remove(member)
            continue
        if member.tag == "method":
            methods[name] = Method(name, _arguments(member, "in"), _arguments(member, "out"), comment)
        elif member.tag == "signal":
            signals[name] = SignalSpec(name, _arguments(member, "out"), comment)
        elif member.tag == "property":
            properties[name] = _property(member, comment)
        comment = ""
    ElementTree.indent(element)
    text = ElementTree.tostring(element, encoding="unicode").strip()
    return Interface(element.get("name", ""), doc, text, methods, signals, properties)


def parse(text: str) -> dict[str, Interface]:
    """The interfaces of one XML document. Raises ValueError or ElementTree.ParseError when it cannot be served."""
    builder = ElementTree.TreeBuilder(insert_comments=True)
    root = ElementTree.fromstring(text, ElementTree.XMLParser(target=builder))  # noqa: S314 - our own file
    prolog = text.partition("<node")[0]
    doc = " ".join(prolog.partition("<!--")[2].partition("-->")[0].split())
    return {found.name: found for element in root.findall("interface") for found in [_interface(element, doc)]}


STANDARD: Mapping[str, Interface] = parse(STANDARD_XML)


def default_directory() -> Path:
    """Where the XML files are: beside the sources when run from there, else where the package installs them."""
    candidates = (
        Path(__file__).parents[2] / "dbus",
        Path(sysconfig.get_path("data")) / INSTALLED,
        Path("/usr") / INSTALLED,
    )
    for directory in candidates:
        if (directory / f"{MANAGER}.xml").is_file():
            return directory
    raise FileNotFoundError(f"{MANAGER}.xml is neither beside the sources nor in /usr/{INSTALLED}")


def load(directory: Path | None = None) -> dict[str, Interface]:
    """Our interfaces by name. Raises OSError or ValueError: a daemon without its interfaces does not start."""
    folder = directory or default_directory()
    found: dict[str, Interface] = {}
    for name in (MANAGER, TASK, SESSION, APPROVAL, WORKER):
        found.update(parse((folder / f"{name}.xml").read_text("utf-8")))
    return found


def introspection(interface: Interface | None, child: str = "") -> str:
    """The Introspect answer of an object with the standard interfaces and `interface`; `child`: the one listed."""
    parts = [one.xml for one in STANDARD.values()]
    if interface is not None:
        parts.append(interface.xml)
    if child:
        parts.append(f'<node name="{child}" />')
    return DOCTYPE + "<node>\n" + "\n".join(parts) + "\n</node>\n"
