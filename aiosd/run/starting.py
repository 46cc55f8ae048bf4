"""One start: from the request of an unprivileged daemon to a shim at its gate inside its scope.

The order is the safety: who and what comes from the manifest; the directory is claimed before anything is forked; the
gate stays closed until the scope with its limits is there; whatever fails closes the gate and takes everything back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from aiosd.manifest.argv import build_argv
from aiosd.manifest.directories import DEFAULT, load_one, trace
from aiosd.model.later import dataclass
from aiosd.run import identity
from aiosd.run.layout import unit_name
from aiosd.run.limits import as_json, scope_properties, tighten
from aiosd.run.protocol import Refusal, RefusalCode, number_of, text_of
from aiosd.run.rundirs import RunDirectories, RunRecord
from aiosd.run.spec import ShimSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aiosd.manifest.directories import Trace
    from aiosd.model.jsontext import JsonObject, JsonValue
    from aiosd.model.manifest import Capability, Limits
    from aiosd.run.forkclient import ForkServer
    from aiosd.run.units import Units

_LOG_MAX = 1 << 32
_BLOBS_MAX = 1 << 30
_RUNTIME_MAX = 1 << 52


class Manifests:
    """Installed capabilities, each read again as soon as its file in any of the directories changed."""

    def __init__(self, directories: tuple[Path, ...] = DEFAULT) -> None:
        """`directories`: weakest first."""
        self._directories = directories
        self._known: dict[str, tuple[Trace, Capability]] = {}

    def find(self, name: str) -> Capability | None:
        """The capability of that id as it is on disk now. A few lstat(2) when nothing changed."""
        now = trace(name, self._directories)
        known = self._known.get(name)
        if known is not None and known[0] == now:
            return known[1]
        found = load_one(name, self._directories)
        if found is None:
            self._known.pop(name, None)
            return None
        self._known[name] = (now, found)
        return found


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A `start`, checked in form. Microseconds and bytes. `read_only`: only ever less than the manifest gives."""

    run: str
    task: str
    capability: str
    uid: int
    values: dict[str, str]
    limits: JsonValue
    runtime_max_usec: int
    log_max_bytes: int
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """A run at its gate; both descriptors are the receiver's. `left_out`: properties that systemd does not know."""

    run: str
    pid: int
    unit: str
    limits: JsonObject
    left_out: list[str]
    control: int
    pidfd: int


def read_request(body: JsonObject) -> StartRequest:
    """A request's fields. Raises Refusal."""
    values = body.get("argv_values", {})
    if not isinstance(values, Mapping):
        raise Refusal(RefusalCode.BAD_REQUEST, "argv_values: must be an object")
    return StartRequest(
        run=text_of(body, "run"),
        task=text_of(body, "task"),
        capability=text_of(body, "capability"),
        uid=number_of(body, "uid", maximum=2**32 - 2),
        values={key: text_of(values, key) for key in values},
        limits=body.get("limits"),
        runtime_max_usec=number_of(body, "runtime_max_usec", maximum=_RUNTIME_MAX, default=0),
        log_max_bytes=number_of(body, "log_max_bytes", maximum=_LOG_MAX),
        read_only=body.get("read_only") is True,
    )


class Starter:
    """Carries out starts, many at a time."""

    def __init__(
        self,
        runs: RunDirectories,
        manifests: Manifests,
        why_not: Callable[[Capability, int], str],
        uids: identity.DynamicUids,
        forks: ForkServer,
        units: Units,
    ) -> None:
        """All of it made by `launcher.main`. `why_not`: what forbids a capability to a user (auth/enforced.py)."""
        self._runs = runs
        self._manifests = manifests
        self._why_not = why_not
        self._uids = uids
        self._forks = forks
        self._units = units

    async def start(self, request: StartRequest, boot_id: str) -> Started:
        """Bring a run to its gate. Raises Refusal, after which nothing of it is left."""
        capability = self._manifests.find(request.capability)
        if capability is None:
            raise Refusal(RefusalCode.CAPABILITY_MISSING, f"{request.capability} is not installed")
        forbidden = self._why_not(capability, request.uid)
        if forbidden:
            raise Refusal(RefusalCode.DENIED, forbidden)
        try:
            limits = tighten(capability.limits, request.limits)
            argv = build_argv(capability.exec, request.values)
        except ValueError as error:
            raise Refusal(RefusalCode.BAD_REQUEST, str(error)) from None
        capability = replace(capability, limits=limits)
        if request.read_only:
            capability = identity.for_research(capability)
        try:
            who = identity.identify(capability, request.uid, request.run, self._uids)
        except identity.IdentityError as error:
            raise Refusal(RefusalCode.LAUNCH, str(error)) from None
        try:
            return await self._start_as(who, capability, argv, request, boot_id)
        except BaseException:
            if who.dynamic:
                self._uids.give_back(who.account.uid, request.run)
            raise

    async def _start_as(
        self, who: identity.Identified, capability: Capability, argv: list[str], request: StartRequest, boot_id: str
    ) -> Started:
        spec = self._spec(who, capability, argv, request)
        try:
            files = self._runs.create(request.run, who.account)
        except FileExistsError:
            raise Refusal(RefusalCode.BUSY, "the run has been started before") from None
        except OSError as error:
            raise Refusal(RefusalCode.LAUNCH, f"the run directory cannot be made: {error.strerror}") from None
        try:
            with files:
                return await self._fork(spec, files.fds, capability, request, boot_id)
        except BaseException:
            await asyncio.to_thread(self._runs.remove, request.run)
            raise
        finally:
            await self._forks.refill()

    def _spec(
        self, who: identity.Identified, capability: Capability, argv: list[str], request: StartRequest
    ) -> ShimSpec:
        scratch = self._runs.paths(request.run).scratch
        return ShimSpec(
            run=request.run,
            task=request.task,
            capability=capability.id,
            unit=unit_name(request.run),
            argv=tuple(argv),
            environment=identity.environment(who, request.run, request.task, capability.id, scratch),
            account=who.account,
            keep_capabilities=identity.keeps_capabilities(capability, who),
            view=identity.view_for(capability, who, scratch, research=request.read_only),
            open_files=capability.limits.open_files,
            log_max_bytes=min(request.log_max_bytes, capability.limits.log_max or _LOG_MAX),
            blobs_max_bytes=capability.limits.scratch_max or _BLOBS_MAX,
            grace_ms=capability.cancel_grace_ms,
        )

    async def _fork(
        self, spec: ShimSpec, files: list[int], capability: Capability, request: StartRequest, boot_id: str
    ) -> Started:
        with ExitStack() as undo:
            ours, shims = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(ours.close)
            with shims:
                pid, pidfd = await self._forks.fork(spec, [shims.fileno(), *files])
            undo.callback(os.close, pidfd)
            undo.callback(_kill, pidfd)
            self._runs.write(_record(spec, boot_id, pid, request.uid))
            left_out = await self._scope(spec, pid, capability.limits, request)
            undo.pop_all()
            return Started(spec.run, pid, spec.unit, as_json(capability.limits), left_out, ours.detach(), pidfd)

    async def _scope(self, spec: ShimSpec, pid: int, limits: Limits, request: StartRequest) -> list[str]:
        properties = scope_properties(limits, grace_ms=spec.grace_ms, runtime_max_usec=request.runtime_max_usec)
        description = f"AIOS task {spec.task}: {spec.capability}"
        return await self._units.start_scope(spec.unit, description, [pid], properties)


def _record(spec: ShimSpec, boot_id: str, pid: int, caller: int) -> RunRecord:
    return RunRecord(
        run=spec.run,
        task=spec.task,
        capability=spec.capability,
        uid=spec.account.uid,
        gid=spec.account.gid,
        unit=spec.unit,
        boot_id=boot_id,
        scratch=spec.view.scratch,
        pid=pid,
        caller=caller,
    )


def _kill(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
