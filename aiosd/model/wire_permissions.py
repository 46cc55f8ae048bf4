"""The JSON edge of permissions: parameters of `permission.*` and `approval.*`, and of answers to `auth_required`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from aiosd.model.wire import CapabilityGlob, CapabilityId, Free, Identifier, Line, Wire

ScopeText = Annotated[str, StringConstraints(pattern=r"^(once|task|session|persistent|timed:[1-9][0-9]{0,8})$")]
Uid = Annotated[int, Field(ge=0, le=(1 << 32) - 2)]
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class PermissionRequest(Wire):
    """`aios/permission.request`. `arguments`: constraints, each `{"equals": value}` or `{"glob": text}` by name."""

    capability_id: CapabilityGlob
    scope: ScopeText = "persistent"
    arguments: Annotated[Free, Field(default_factory=dict)]
    session_id: Identifier | None = None
    task_id: Identifier | None = None


class PermissionList(Wire):
    """`aios/permission.list`. `ended`: revoked, expired and used ones, too."""

    all_users: bool = False
    ended: bool = False


class PermissionRevoke(Wire):
    """`aios/permission.revoke`."""

    grant_id: Identifier


class PermissionExplain(Wire):
    """`aios/permission.explain`: what would happen, and why. `uid`: of another user."""

    capability_id: CapabilityId
    arguments: Annotated[Free, Field(default_factory=dict)]
    session_id: Identifier | None = None
    uid: Uid | None = None


class ApprovalList(Wire):
    """`aios/approval.list`: those that wait, unless `decided` ones are wanted, too."""

    task_id: Identifier | None = None
    session_id: Identifier | None = None
    all_users: bool = False
    decided: bool = False


class ApprovalRef(Wire):
    """`aios/approval.get`."""

    approval_id: Identifier


class ApprovalRespond(ApprovalRef):
    """`aios/approval.respond`. `request_hash`: of what the person was shown; another one makes the answer void."""

    action: Literal["approve", "reject", "approve_once", "approve_for_session"]
    request_hash: Hash | None = None
    note: Line | None = None
