"""Everything inside the doors, put together: from a store, a launcher and an authority to a manager that answers.

`app.py` does it with the real ones, the tests with theirs. `Services.work` is what has to run beside the doors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from aiosd.core import stops
from aiosd.core.approval_answers import ApprovalAnswers
from aiosd.core.approval_operations import ApprovalOperations
from aiosd.core.assigner import Assigner
from aiosd.core.audit_operations import AuditOperations
from aiosd.core.authentication_operations import AuthenticationOperations, Handover
from aiosd.core.authorization import Authorizer
from aiosd.core.consent import Consents
from aiosd.core.content_operations import ContentOperations
from aiosd.core.control import Control
from aiosd.core.creation import Creation
from aiosd.core.crew import Crew
from aiosd.core.deferred import Deferred
from aiosd.core.emergency import Emergency
from aiosd.core.emergency_operations import EmergencyOperations
from aiosd.core.executors import LOCAL, WORKERS, Executors, LocalScopes
from aiosd.core.expiry import Expiry
from aiosd.core.holding import Holding
from aiosd.core.kept_subscriptions import KeptSubscriptions
from aiosd.core.lapse import Lapse
from aiosd.core.manager import Manager
from aiosd.core.permission_operations import PermissionOperations
from aiosd.core.plan_operations import PlanOperations
from aiosd.core.pressure import Pressure
from aiosd.core.protocol_operations import ProtocolOperations
from aiosd.core.rates import Rates
from aiosd.core.recovery import Recoverer
from aiosd.core.retention import Retention
from aiosd.core.scheduler import Scheduler
from aiosd.core.service_operations import ServiceOperations
from aiosd.core.session_operations import SessionOperations
from aiosd.core.subscription_operations import SubscriptionOperations
from aiosd.core.supervision import Supervision
from aiosd.core.task_operations import TaskOperations
from aiosd.core.time_change import TimeChange
from aiosd.core.time_limits import TimeLimits
from aiosd.core.webhook_operations import WebhookOperations
from aiosd.core.worker_operations import WorkerOperations
from aiosd.hooks.delivery import Deliverer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

    from aiosd.auth.decision import Authority
    from aiosd.auth.places import Places
    from aiosd.core.artifacts import BlobStore
    from aiosd.core.audit_trail import AuditTrail
    from aiosd.core.events import EventHub
    from aiosd.core.manager import Handlers
    from aiosd.core.policies import PolicyStore
    from aiosd.core.registry import Registry
    from aiosd.core.secrets import Vault
    from aiosd.core.settings import Settings
    from aiosd.run.client import LauncherClient
    from aiosd.store.database import Database


@dataclass(frozen=True)
class Ground:
    """What the services stand on; opened and closed by whoever builds them."""

    database: Database
    path: Path
    state: Path
    trail: AuditTrail
    vault: Vault
    launcher: LauncherClient
    launcher_state: Path
    authority: Authority
    places: Places
    registry: Registry
    policies: PolicyStore
    settings: Settings
    hub: EventHub
    blobs: BlobStore
    boot_id: str
    reload: Callable[[], Awaitable[None]]
    pressure: Pressure = field(default_factory=Pressure)


class Services:
    """The services, each made when it is first asked for and once; the order of making follows from who needs whom."""

    def __init__(self, ground: Ground) -> None:
        """Makes all of them and lets them hear what is committed."""
        self.ground = ground
        self.executors.add(LOCAL, LocalScopes(ground.boot_id, self.supervision.launch))
        self.executors.add(WORKERS, self.assigner)
        for listener in (
            self.deliverer, self.scheduler, self.expiry, self.lapse, self.holding, self.approval_answers, self.crew,
            self.assigner, self.limits,
        ):  # fmt: skip
            ground.hub.listen(listener.heard)

    @cached_property
    def authorizer(self) -> Authorizer:
        """Asks the authority, and records what it answered."""
        return Authorizer(self.ground.authority, self.ground.places, record=self.ground.trail.answered)

    @cached_property
    def limits(self) -> TimeLimits:
        """What is left of tasks' time limits."""
        return TimeLimits()

    @cached_property
    def supervision(self) -> Supervision:
        """The live runs."""
        here = self.ground
        return Supervision(
            here.database, here.launcher, here.registry, here.settings, here.blobs, here.launcher_state, self.limits
        )

    @cached_property
    def scheduler(self) -> Scheduler:
        """Who starts."""
        here = self.ground
        return Scheduler(here.database, here.registry, here.settings, self.executors, here.pressure)

    @cached_property
    def executors(self) -> Executors:
        """Who carries tasks out, by type of capability."""
        return Executors()

    @cached_property
    def crew(self) -> Crew:
        """The workers that are there."""
        return Crew(self.ground.database, self.ground.settings, self.ground.boot_id)

    @cached_property
    def assigner(self) -> Assigner:
        """Which worker gets what."""
        here = self.ground
        return Assigner(
            here.database, here.settings, self.crew, self.executors, lambda: self.scheduler.draining, self.limits
        )

    @cached_property
    def recoverer(self) -> Recoverer:
        """What a restart finds."""
        here = self.ground
        return Recoverer(
            here.database, here.launcher, here.registry, self.supervision, here.launcher_state, here.boot_id
        )

    @cached_property
    def consents(self) -> Consents:
        """Grants, policies and polkit, one question for all."""
        here = self.ground
        return Consents(here.database, self.authorizer, here.policies, here.settings)

    @cached_property
    def creation(self) -> Creation:
        """Makes tasks."""
        here = self.ground
        return Creation(here.database, here.registry, self.authorizer, here.settings, self.consents)

    @cached_property
    def control(self) -> Control:
        """Changes tasks."""
        return Control(self.ground.database, self.supervision)

    @cached_property
    def holding(self) -> Holding:
        """Carries out what plans and parents want of running tasks."""
        return Holding(self.ground.database, self.control)

    @cached_property
    def handover(self) -> Handover:
        """Hands secrets to the programs that asked."""
        return Handover(self.ground.database, self.ground.vault, self.supervision)

    @cached_property
    def expiry(self) -> Expiry:
        """Ends questions that nobody answered."""
        return Expiry(self.ground.database, self.supervision)

    @cached_property
    def lapse(self) -> Lapse:
        """Ends approvals and deferred requests that nobody answered."""
        return Lapse(self.ground.database)

    @cached_property
    def approval_answers(self) -> ApprovalAnswers:
        """Tells programs what became of the approvals that they asked for."""
        return ApprovalAnswers(self.ground.database, self.supervision)

    @cached_property
    def deliverer(self) -> Deliverer:
        """Sends webhooks."""
        return Deliverer(self.ground.database, self.ground.vault, self.ground.settings)

    @cached_property
    def emergency(self) -> Emergency:
        """The kill switch."""
        here = self.ground
        return Emergency(here.database, here.launcher, self.supervision, here.settings, here.state / stops.FILE)

    @cached_property
    def kept_subscriptions(self) -> KeptSubscriptions:
        """Subscriptions that outlive the daemon."""
        return KeptSubscriptions(self.ground.database)

    @cached_property
    def retention(self) -> Retention:
        """Removes what is old."""
        here = self.ground
        return Retention(here.database, here.launcher, here.settings, here.blobs)

    @cached_property
    def manager(self) -> Manager:
        """What the doors talk to."""
        return Manager(self.ground.hub, [*self._task_groups(), *self._service_groups()], Rates(self.ground.settings))

    def _task_groups(self) -> Sequence[Handlers]:
        here, ask = self.ground, self.authorizer
        return (
            TaskOperations(here.database, here.hub, ask, self.creation, self.control, self.scheduler, self.holding),
            SessionOperations(here.database, ask, here.settings, self.control),
            PlanOperations(here.database, ask, here.settings, here.registry, self.creation, self.control, self.holding),
            ContentOperations(here.database, ask, here.blobs, self.supervision, here.launcher_state),
            SubscriptionOperations(here.database, ask),
            WorkerOperations(here.database, ask, here.settings, self.crew, here.boot_id, self.limits),
            WebhookOperations(here.database, ask, here.settings, here.vault, self.deliverer.wake),
        )

    def _service_groups(self) -> Sequence[Handlers]:
        here, ask = self.ground, self.authorizer
        deferred = Deferred(here.database, here.registry, self.consents, here.settings)
        return (
            PermissionOperations(here.database, here.registry, ask, self.consents, here.settings),
            ApprovalOperations(here.database, here.registry, ask, self.lapse.delays),
            AuthenticationOperations(here.database, ask, here.vault, self.supervision, self.handover, deferred),
            ProtocolOperations(here.settings),
            AuditOperations(here.database, ask, here.trail),
            EmergencyOperations(ask, self.emergency, here.settings, self.scheduler),
            ServiceOperations(
                here.database,
                here.registry,
                ask,
                here.settings,
                here.launcher,
                here.path,
                here.reload,
                self.scheduler,
                here.policies,
            ),
        )

    @cached_property
    def time_change(self) -> TimeChange:
        """Who waits for a time looks at the clock again when it was set, or the machine has slept."""
        return TimeChange(
            (
                self.scheduler.wake,
                self.supervision.look_again,
                self.expiry.look_again,
                self.lapse.look_again,
                self.assigner.wake,
            )
        )

    def work(self) -> Sequence[Coroutine[None, None, None]]:
        """What runs for ever beside the doors; the scheduler's own loop begins after recovery."""
        return (
            self.supervision.run(),
            self.crew.run(),
            self.assigner.run(),
            self.deliverer.run(),
            self.handover.run(),
            self.expiry.run(),
            self.lapse.run(),
            self.time_change.run(),
            self.approval_answers.run(),
            self.retention.run(),
            self.ground.trail.run(self.ground.settings),
        )
