"""Handlers of the protocol itself: the greeting, with the version that both sides speak, and the leave-taking.

The version is only said once and changes nothing afterwards: what is spoken differs in additions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd import __version__
from aiosd.core.operations import Reply
from aiosd.errors import AiosError, ErrorKind
from aiosd.model.event import Kind
from aiosd.model.ids import Prefix, new_id
from aiosd.model.jsontext import MAX_TEXT_BYTES
from aiosd.model.status import A2A

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from aiosd.auth.caller import Caller
    from aiosd.core.settings import Settings
    from aiosd.model import wire
    from aiosd.model.jsontext import JsonObject, JsonValue

SUPPORTED_VERSIONS = ("2.0.0", "0.3.0")
"""Newest first. 2.0.0 is seed 000's own version, 0.3.0 the one that its family's examples send."""

MAX_BATCH = 100
"""Calls in one JSON-RPC batch."""
TRANSPORTS = ("dbus", "http+sse", "json-lines")
AUTH_TYPES = ("oauth2", "api_key", "password", "certificate")
"""Of `auth_request` (seed 000)."""


def choose(preferred: str | None, others: Sequence[str]) -> str:
    """The highest version that both sides speak; a client that names none takes ours.

    Raises AiosError (VersionMismatch) with `supported_versions` when there is none.
    """
    asked = {*others, *([] if preferred is None else [preferred])}
    if not asked:
        return SUPPORTED_VERSIONS[0]
    common = [version for version in SUPPORTED_VERSIONS if version in asked]
    if common:
        return common[0]
    data: JsonObject = {
        "requested_version": preferred or others[0],
        "supported_versions": list(SUPPORTED_VERSIONS),
        "latest_version": SUPPORTED_VERSIONS[0],
    }
    raise AiosError(ErrorKind.VERSION_MISMATCH, field="protocol_version", data=data)


class ProtocolOperations:
    """`initialize`, `initialized`, `shutdown`."""

    def __init__(self, settings: Settings) -> None:
        """`settings`: for the limits that are told."""
        self._settings = settings

    def handlers(self) -> Mapping[str, Callable[..., Awaitable[Reply]]]:
        """By operation name."""
        return {"initialize": self.initialize, "initialized": self.initialized, "shutdown": self.shutdown}

    async def initialize(self, _caller: Caller, params: wire.Initialize) -> Reply:
        """The version that is spoken, and what there is."""
        body: dict[str, JsonValue] = {
            "protocol_version": choose(params.protocol_version, params.supported_versions),
            "supported_versions": list(SUPPORTED_VERSIONS),
            "server_info": {"name": "aiosd", "version": __version__, "platform": "linux"},
            "capabilities": self._capabilities(),
            "session": {"session_id": new_id(Prefix.CLIENT)},
        }
        return Reply(body)

    def _capabilities(self) -> JsonObject:
        config = self._settings.current
        return {
            "streaming": True,
            "batch": True,
            "notifications": True,
            "task_management": True,
            "transports": list(TRANSPORTS),
            "auth_types": list(AUTH_TYPES),
            "events": [kind.value for kind in Kind if kind is not Kind.TIMELINE],
            "limits": {
                "max_concurrent_tasks": config.max_concurrent_tasks,
                "max_tasks_per_tool": config.max_tasks_per_tool,
                "max_queue_size": config.max_queue_size,
            },
            "a2a_states": {status.value: name for status, name in A2A.items()},
            "messages": {"max_batch_size": MAX_BATCH, "max_message_size": MAX_TEXT_BYTES},
        }

    async def initialized(self, _caller: Caller, _params: wire.Empty) -> Reply:
        """Nothing to do: a client is served from its first call on."""
        return Reply({})

    async def shutdown(self, _caller: Caller, _params: wire.Shutdown) -> Reply:
        """The door ends what it keeps for the client. Tasks are nobody's session: none is canceled."""
        return Reply({"success": True, "pending_tasks_cancelled": 0})
