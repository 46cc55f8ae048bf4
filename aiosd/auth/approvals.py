"""What an approval binds, and who may give it. Pure.

An approval is of one request: capability (its manifest as it is now), arguments, and the user who asked. Whatever of
that changes makes it void. It is a *second, independent* act: never the asking connection's own, unless the person
behind that has just authenticated as one.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import TYPE_CHECKING

from aiosd.auth.caller import BusSubject
from aiosd.model import jsontext

if TYPE_CHECKING:
    from aiosd.auth.caller import Caller, Subject
    from aiosd.model.jsontext import JsonObject
    from aiosd.model.manifest import Capability


BY_WORKER = ", worker "
"""What stands in an approval's requester between who made the task and the worker that asked."""


def request_hash(capability: Capability, arguments: JsonObject, uid: int) -> str:
    """SHA-256 in hex of the canonical JSON of capability id, arguments, requester and the manifest in force."""
    manifest = jsontext.canonical(asdict(capability))
    bound: JsonObject = {
        "capability": capability.id,
        "arguments": arguments,
        "uid": uid,
        "manifest": hashlib.sha256(manifest.encode()).hexdigest(),
    }
    return hashlib.sha256(jsontext.canonical(bound).encode()).hexdigest()


def asked_hash(capability_id: str, uid: int, kind: str, summary: str, risk_level: str) -> str:
    """SHA-256 in hex of what a running program asked for: its own words, and whose program said them."""
    bound: JsonObject = {
        "asked_by": capability_id, "uid": uid, "kind": kind, "summary": summary, "risk_level": risk_level
    }  # fmt: skip
    return hashlib.sha256(jsontext.canonical(bound).encode()).hexdigest()


def connection_of(subject: Subject) -> str:
    """The connection that a request came over, to tell it from another one."""
    if isinstance(subject, BusSubject):
        return f"bus {subject.name}"
    return f"process {subject.pid} {subject.start_time}"


def is_own(requester: str, requester_uid: int, responder: Caller) -> bool:
    """Whether the answer would come from the connection that asked, or that made the task whose program asks; a worker
    elsewhere is named after that one, and may be another user's."""
    maker, _, worker = requester.partition(BY_WORKER)
    mine = connection_of(responder.subject)
    return (requester_uid == responder.uid and mine == maker) or mine == worker
