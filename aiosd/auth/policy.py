"""The authorisation table's vocabulary: polkit actions, and which one an access needs. Pure; not listed is denied.

Each operation declares one `Access` (core/operations.py). `required_action` turns it, with what is known of the object,
into the polkit action to ask for, or None when nobody has to be asked.
"""

from __future__ import annotations

from enum import StrEnum

from aiosd.model.status import Level

ACTION_PREFIX = "org.aios.TaskManager."


class Action(StrEnum):
    """polkit actions (polkit/org.aios.TaskManager.policy)."""

    RUN_PUBLIC = ACTION_PREFIX + "run-public"
    RUN_LOW = ACTION_PREFIX + "run-low"
    RUN_MEDIUM = ACTION_PREFIX + "run-medium"
    RUN_HIGH = ACTION_PREFIX + "run-high"
    RUN_CRITICAL = ACTION_PREFIX + "run-critical"
    VIEW_OTHERS = ACTION_PREFIX + "view-others"
    CONTROL_OTHERS = ACTION_PREFIX + "control-others"
    APPROVE = ACTION_PREFIX + "approve"
    REGISTER_WORKER = ACTION_PREFIX + "register-worker"
    SUBSCRIBE_WEBHOOK = ACTION_PREFIX + "subscribe-webhook"
    MANAGE = ACTION_PREFIX + "manage"
    PRIORITY_URGENT = ACTION_PREFIX + "priority-urgent"


RUN_ACTIONS: dict[Level, Action] = {
    Level.PUBLIC: Action.RUN_PUBLIC,
    Level.LOW: Action.RUN_LOW,
    Level.MEDIUM: Action.RUN_MEDIUM,
    Level.HIGH: Action.RUN_HIGH,
    Level.CRITICAL: Action.RUN_CRITICAL,
}


class Access(StrEnum):
    """What an operation touches, and so who may."""

    PUBLIC = "public"
    """Nothing private: everyone on the bus."""
    RUN = "run"
    """Runs a capability: the action of its level."""
    VIEW = "view"
    """Reads a task: its owner; others need view-others, and without it the task does not exist for them."""
    CONTROL = "control"
    """Changes a task: its owner; others need control-others, and see it only with view-others or that."""
    OWN = "own"
    """The caller's own connection-bound things (subscriptions)."""
    MANAGE = "manage"
    """Changes the service itself."""
    OWN_OR_MANAGE = "own-or-manage"
    """Concerns one user as a whole: that user; others and the machine need manage."""
    WEBHOOK = "webhook"
    """Makes the service call out over the network about a task."""
    WORKER = "worker"
    """Makes the caller's process one that carries out tasks: the action `register-worker`."""
    AS_WORKER = "as-worker"
    """A worker's own word: its user, who names its registration or an assignment of its own."""
    APPROVE = "approve"
    """Answers an approval: the action `approve`; a request's owner may take it back by themselves."""


def required_action(access: Access, *, own: bool = False, level: Level | None = None) -> Action | None:
    """The polkit action to ask for; None when the access is free. `own`: the object is the caller's. Pure."""
    if access in (Access.PUBLIC, Access.OWN, Access.AS_WORKER):
        return None
    if access is Access.RUN:
        if level is None:
            raise ValueError("running needs the capability's level")
        return RUN_ACTIONS[level]
    if access is Access.VIEW:
        return None if own else Action.VIEW_OTHERS
    if access is Access.CONTROL:
        return None if own else Action.CONTROL_OTHERS
    if access is Access.OWN_OR_MANAGE:
        return None if own else Action.MANAGE
    if access is Access.WEBHOOK:
        return Action.SUBSCRIBE_WEBHOOK
    if access is Access.WORKER:
        return Action.REGISTER_WORKER
    if access is Access.APPROVE:
        return Action.APPROVE
    return Action.MANAGE
