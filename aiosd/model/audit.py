"""What is audited: the kinds of records, the journal's MESSAGE_ID of each, and a record as it leaves the store.

A kind is never renamed or given another number: both stand in trails and journals for years. The catalog
(systemd/aiosd.catalog) explains each number to people; a test holds the two together.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from aiosd.model.later import dataclass

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonObject


class AuditKind(StrEnum):
    """Kinds of records: seed 000's table, the permission model's, and the trail's own."""

    TASK_CREATED = "task.created"
    TASK_STATUS = "task.status"
    TASK_LAUNCH = "task.launch"
    TASK_RETRY = "task.retry"
    TASK_ENDED = "task.ended"
    TASK_PRIORITY = "task.priority"
    TASK_INPUT = "task.input"
    TASK_CANCEL = "task.cancel"
    PERMISSION_ANSWERED = "permission.answered"
    PERMISSION_DENIED = "permission.denied"
    PERMISSION_GRANTED = "permission.granted"
    PERMISSION_USED = "permission.used"
    PERMISSION_REVOKED = "permission.revoked"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_ANSWERED = "approval.answered"
    POLICY_RELOADED = "policy.reloaded"
    WEBHOOK_REGISTERED = "webhook.registered"
    WEBHOOK_REMOVED = "webhook.removed"
    WORKER_REGISTERED = "worker.registered"
    EMERGENCY_STOPPED = "emergency.stopped"
    EMERGENCY_LIFTED = "emergency.lifted"
    AUDIT_KEY = "audit.key"
    AUDIT_CUT = "audit.cut"
    AUDIT_DOUBT = "audit.doubt"


MESSAGE_IDS: dict[str, str] = {
    AuditKind.TASK_CREATED: "3ae34a8463594bf98227d62f899fa1c7",
    AuditKind.TASK_STATUS: "86c3c8b54b574a13a4f6449dfe0dbc02",
    AuditKind.TASK_LAUNCH: "05d4ad3773bf49d682a734bace4f4c3d",
    AuditKind.TASK_RETRY: "240299a99052429f8dee1779bde8bd48",
    AuditKind.TASK_ENDED: "74083eb9178e4b2b9b730530930b5270",
    AuditKind.TASK_PRIORITY: "5562477189224822acfcc59c08cb8570",
    AuditKind.TASK_INPUT: "d7ab25f0653c4d60b1060b0162c0b6d4",
    AuditKind.TASK_CANCEL: "c8e6011621d54aa18f4b9d3a57d630e1",
    AuditKind.PERMISSION_ANSWERED: "b041f3c7893343caaca9ffcd5fb93009",
    AuditKind.PERMISSION_GRANTED: "4b4706a9172446df821e0999607edad5",
    AuditKind.PERMISSION_USED: "4bf8c8636cee48b7855e90fc2e6e490e",
    AuditKind.PERMISSION_REVOKED: "20e212e5ae66478582f35c4ee3f16a7e",
    AuditKind.APPROVAL_REQUESTED: "c1e375dd96c14df1a29cdba557210516",
    AuditKind.APPROVAL_ANSWERED: "f3c83fd8c3b84c3bbded5e69fa51ce10",
    AuditKind.POLICY_RELOADED: "164220b6ade546868a144972f6625e9f",
    AuditKind.PERMISSION_DENIED: "d4ec8fd0566f4adab91550a1961d60fc",
    AuditKind.WEBHOOK_REGISTERED: "890cf9c50e824df791ca7e825c817187",
    AuditKind.WEBHOOK_REMOVED: "637d648fa4e64b17a09aca3ec497f665",
    AuditKind.WORKER_REGISTERED: "f25915427826a4244fd28f8da55db040",
    AuditKind.EMERGENCY_STOPPED: "42546824fd6c431a99be9f878ab767de",
    AuditKind.EMERGENCY_LIFTED: "88d572c6a0d442e6941d3bbb56f74787",
    AuditKind.AUDIT_KEY: "9c48b4df720f497292a6dffe65c3fbc7",
    AuditKind.AUDIT_CUT: "29d3135b91a645d39d1c95012365c42b",
    AuditKind.AUDIT_DOUBT: "9319332bc25e49fbbb3432ef6b4386ba",
}
"""The journal's MESSAGE_ID of each kind (sd-journal: a 128-bit number, made once)."""

SENTENCES: dict[str, str] = {
    AuditKind.TASK_CREATED: "{task} was created by {actor}: {capability_id} ({level})",
    AuditKind.TASK_STATUS: "{task} went from {old} to {new} ({reason}), by {actor}",
    AuditKind.TASK_LAUNCH: "{task} is being launched: {capability_id} ({level}), attempt {attempt}",
    AuditKind.TASK_RETRY: "{task} will be tried again: {reason}",
    AuditKind.TASK_ENDED: "{task} ended as {status} ({reason}) after {elapsed_ms} ms",
    AuditKind.TASK_PRIORITY: "{task} got priority {new} instead of {old}, by {actor}",
    AuditKind.TASK_INPUT: "{task} was given an answer by {actor}",
    AuditKind.TASK_CANCEL: "{task} is to be canceled, by {actor}: {reason}",
    AuditKind.PERMISSION_ANSWERED: "permission for {actor}: {capability_id} {decision}",
    AuditKind.PERMISSION_DENIED: "permission denied to {actor}: {capability_id}",
    AuditKind.PERMISSION_GRANTED: "{actor} has a grant for {capability_id} ({scope})",
    AuditKind.PERMISSION_USED: "{actor} used the grant {grant_id} for {capability_id}",
    AuditKind.PERMISSION_REVOKED: "the grant {grant_id} was revoked by {actor}",
    AuditKind.APPROVAL_REQUESTED: "{task} waits for the approval {approval_id}",
    AuditKind.APPROVAL_ANSWERED: "the approval {approval_id} of {task} was answered by {actor}: {decision}",
    AuditKind.POLICY_RELOADED: "the permission policy was read again by {actor}",
    AuditKind.WEBHOOK_REGISTERED: "{actor} has the events of {task} sent to a webhook",
    AuditKind.WEBHOOK_REMOVED: "{actor} has the events of {task} sent to a webhook no more",
    AuditKind.WORKER_REGISTERED: "{actor} registered the worker {worker_id} on {hostname}",
    AuditKind.EMERGENCY_STOPPED: "EMERGENCY STOP by {actor}: {scope}, {stopped} tasks stopped",
    AuditKind.EMERGENCY_LIFTED: "the emergency stop of {scope} was lifted by {actor}",
    AuditKind.AUDIT_KEY: "the audit trail is signed with the key {fingerprint} from here on",
    AuditKind.AUDIT_CUT: "{records} audit records were removed by retention, through number {through}",
    AuditKind.AUDIT_DOUBT: "THE AUDIT TRAIL MAY HAVE BEEN CHANGED: {reason}",
}
"""What each record is in one line; a field that a record has not is shown as a dash."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A committed record. Times in microseconds since the epoch; `hash`: hexadecimal; `text`: the details as stored."""

    seq: int
    time: int
    uid: int | None
    actor: str
    kind: str
    task_id: str | None
    details: JsonObject
    hash: str
    text: str
