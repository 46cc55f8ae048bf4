"""Whether an audit trail is as it was written: pure, over the rows of a database or of an export.

Without the private key nothing can be changed, left out, put in another order or cut off that is not named here, as
long as the public keys are the right ones (`trusted`) and, for the newest rows, something outside the trail says how
far it had come: the head file, the database's number counter, or the journal (`witnesses`). With the private key, that
is as the daemon, the rows since the last rotation can be made anew; only witnesses that the daemon cannot change (the
journal, an export kept elsewhere) then tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.audit import AuditKind
from aiosd.model.later import dataclass
from aiosd.store.audit import GENESIS, audit_record, chained
from aiosd.store.audit_key import endorsement_message, seal_message

if TYPE_CHECKING:
    from aiosd.store.audit import AuditRow
    from aiosd.store.audit_key import PublicKey
    from aiosd.store.audit_seal import Head

MAX_PROBLEMS = 1000
"""Findings that are told; a trail with more of them is not worth the list."""


class Fault(StrEnum):
    """What can be wrong."""

    ALTERED = "altered"
    REMOVED = "removed"
    REORDERED = "reordered"
    TRUNCATED = "truncated"
    UNSIGNED = "unsigned"
    SIGNATURE = "bad-signature"
    KEY = "unknown-key"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding, about the rows from `first` to `last`, both included."""

    fault: Fault
    first: int
    last: int
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there is beside the rows. `issued`: the largest number given out. `witnesses`: row number to hash.

    `trusted`: fingerprints that the verifier knows from elsewhere; empty trusts the oldest key.
    """

    keys: tuple[PublicKey, ...] = ()
    head: Head | None = None
    issued: int | None = None
    witnesses: Mapping[int, bytes] = field(default_factory=dict)
    trusted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Report:
    """The result. `rows` from `first` to `last`; `signed`: signatures that were checked and right."""

    rows: int
    first: int
    last: int
    signed: int
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def verify(source: Callable[[], Iterable[AuditRow]], evidence: Evidence) -> Report:
    """Read the trail once (twice when rows are out of order) and say what is wrong with it."""
    return _Verifier(source, evidence).run()


class _Verifier:
    def __init__(self, source: Callable[[], Iterable[AuditRow]], evidence: Evidence) -> None:
        self.source = source
        self.evidence = evidence
        self.problems: list[Problem] = []
        self.places: dict[bytes, int] | None = None
        self.cuts: set[tuple[int, str]] = set()
        self.first: AuditRow | None = None
        self.last: AuditRow | None = None
        self.count = 0
        self.signed = 0
        self.signed_through = 0
        self.expected = dict(evidence.witnesses)
        self.keys = {key.id: key for key in evidence.keys}
        self.foreign: list[tuple[int, int, str]] = []

    def run(self) -> Report:
        trusted = self.trusted_keys()
        self.take_head(trusted)
        for row in self.source():
            if len(self.problems) >= MAX_PROBLEMS:
                break
            self.take(row, trusted)
        self.end()
        first = 0 if self.first is None else self.first.seq
        last = 0 if self.last is None else self.last.seq
        return Report(self.count, first, last, self.signed, tuple(_joined(self.problems)))

    def found(self, fault: Fault, first: int, last: int, text: str) -> None:
        self.problems.append(Problem(fault, first, last, text))

    # -- keys and the head

    def trusted_keys(self) -> set[str]:
        """Known fingerprints, and what an unbroken line of endorsements leads to from them."""
        trusted = set(self.evidence.trusted)
        if not trusted and self.evidence.keys:
            trusted.add(self.evidence.keys[0].id)
        for key in self.evidence.keys:
            endorser = self.keys.get(key.endorser or "")
            if endorser is not None and endorser.id in trusted and key.endorsement is not None:
                if endorser.signed(key.endorsement, endorsement_message(key.public)):
                    trusted.add(key.id)
        return trusted

    def take_head(self, trusted: set[str]) -> None:
        head = self.evidence.head
        if head is None:
            return
        key = self.keys.get(head.key_id)
        if key is None or key.id not in trusted or not key.signed(head.signature, seal_message(head.seq, head.hash)):
            self.found(Fault.SIGNATURE, head.seq, head.seq, "the head file is not signed by a key that is trusted")
            return
        self.expected.setdefault(head.seq, head.hash)

    # -- row by row

    def take(self, row: AuditRow, trusted: set[str]) -> None:
        self.count += 1
        self.check_content(row)
        self.check_link(row)
        self.check_signature(row, trusted)
        witness = self.expected.get(row.seq)
        if witness is not None and witness != row.hash:
            self.found(Fault.ALTERED, row.seq, row.seq, "a witness outside the trail had another record here")
        if row.kind == AuditKind.AUDIT_CUT:
            self.remember_cut(row)
        self.first = self.first or row
        self.last = row

    def check_content(self, row: AuditRow) -> None:
        try:
            details = json.loads(row.details)
            record = audit_record(
                time=row.time, uid=row.uid, actor=row.actor, kind=row.kind, task_id=row.task_id, details=details
            )
        except ValueError:
            record = ""
        if chained(row.previous, record) != row.hash:
            self.found(Fault.ALTERED, row.seq, row.seq, "the content is not what was hashed")

    def check_link(self, row: AuditRow) -> None:
        if self.last is None:
            return  # where it begins is looked at in the end, when the cuts are known
        if row.previous == self.last.hash:
            if row.seq != self.last.seq + 1:
                self.found(Fault.ALTERED, row.seq, row.seq, "the number is not the one after the record before")
            return
        before = self.place_of(row.previous)
        if row.seq > self.last.seq + 1:
            text = "missing: the next record was chained to another that is not there"
            self.found(Fault.REMOVED, self.last.seq + 1, row.seq - 1, text)
        elif before is not None:
            self.found(Fault.REORDERED, row.seq, row.seq, f"it was written after what is now record {before}")
        else:
            text = "altered, or records after it are missing: the next one was chained to another"
            self.found(Fault.ALTERED, self.last.seq, self.last.seq, text)

    def place_of(self, digest: bytes) -> int | None:
        """Where the row with that hash is now. The table is only made when something is wrong."""
        if self.places is None:
            self.places = {row.hash: row.seq for row in self.source()}
        return self.places.get(digest)

    def check_signature(self, row: AuditRow, trusted: set[str]) -> None:
        if row.signature is None:
            return
        covers = self.signed_through + 1 if self.signed_through else row.seq
        key = self.keys.get(row.key_id or "")
        if key is None or key.id not in trusted:
            self.foreign.append((covers, row.seq, str(row.key_id)))
        if key is not None and not key.signed(row.signature, seal_message(row.seq, row.hash)):
            self.found(Fault.SIGNATURE, covers, row.seq, "the signature over these records is wrong")
        elif key is not None and key.id in trusted:
            self.signed += 1
            # The chain carries it back: whatever key signed before, a trusted one has now signed all of it.
            self.foreign.clear()
        self.signed_through = row.seq

    def remember_cut(self, row: AuditRow) -> None:
        details = json.loads(row.details)
        if isinstance(details, Mapping):
            self.cuts.add((int(str(details.get("through", 0))), str(details.get("hash"))))

    # -- the two ends

    def end(self) -> None:
        last = 0 if self.last is None else self.last.seq
        if self.first is not None and (self.first.seq, self.first.previous) != (1, GENESIS):
            if (self.first.seq - 1, self.first.previous.hex()) not in self.cuts:
                text = "missing: no record says that the trail was cut here"
                self.found(Fault.REMOVED, 1, max(1, self.first.seq - 1), text)
        for covers, seq, key in self.foreign:
            self.found(Fault.KEY, covers, seq, f"signed by {key}, which no trusted key has endorsed")
        if self.keys and last > self.signed_through:
            self.found(Fault.UNSIGNED, self.signed_through + 1, last, "no signature covers these records")
        reached = max([*self.expected, self.evidence.issued or 0], default=0)
        if reached > last:
            self.found(Fault.TRUNCATED, last + 1, reached, "missing from the end: the trail had come further")


def _joined(problems: list[Problem]) -> Iterator[Problem]:
    """Neighbours with the same fault and text as one."""
    waiting: Problem | None = None
    for problem in sorted(problems, key=lambda one: (one.fault, one.first)):
        if (
            waiting is not None
            and waiting.fault is problem.fault
            and problem.first <= waiting.last + 1
            and (waiting.text == problem.text or problem.fault is Fault.REORDERED)
        ):
            waiting = Problem(waiting.fault, waiting.first, max(waiting.last, problem.last), waiting.text)
            continue
        if waiting is not None:
            yield waiting
        waiting = problem
    if waiting is not None:
        yield waiting
