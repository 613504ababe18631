"""Reconcile a KafkaReassignment: look, plan once, wait for the approval, then move what may move, throttled.

Everything it knows is in Kafka and in the records: any leader continues where another ended. No finalizer
keeps a resource from being deleted; from its record the next leader learns what is left to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import structlog

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.execution import Pace
from blockhouse.fleet.frozen import FrozenPlan, Seen, freeze, judge
from blockhouse.fleet.throttle_figures import ThrottleFigures
from blockhouse_operator.adapters.kinds import CONFIG_MAP, KAFKA_REASSIGNMENT, Object
from blockhouse_operator.adapters.reassignment import ReassignmentKafka, Throttling
from blockhouse_operator.api.conditions import Condition, ConditionType, Reason, condition, reason_of_silence
from blockhouse_operator.api.kafka import KafkaCluster
from blockhouse_operator.api.reassignment import KafkaReassignmentStatus
from blockhouse_operator.api.resource import InvalidSpec, KafkaReassignment, parse_reassignment
from blockhouse_operator.decide.reassignment import (
    Phase,
    Standing,
    conditions_of,
    may_start,
    overdue,
    phase_of,
    progress_of,
    throttles_of,
)
from blockhouse_operator.decide.reassignment_plan import make_plan, plan_status, question, shown_plan
from blockhouse_operator.decide.reassignment_queue import absent_from, left_on, parse_status, strangers_to
from blockhouse_operator.decide.reassignment_throttle import ended_overrides
from blockhouse_operator.reconcile.reassignment_clusters import KafkaClusters, Obstacle, OpenCluster
from blockhouse_operator.reconcile.reassignment_leaving import Leaving
from blockhouse_operator.reconcile.reassignment_records import (
    PlanRecord,
    is_ours,
    plan_name,
    read_plan_record,
)
from blockhouse_operator.reconcile.report import report, with_times
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)

MESSAGE = 2000
"""Characters of a condition's message: a plan can fail at each of ten thousand partitions."""
BUSY, SOON = 2.0, 10.0
"""Seconds until the next look while partitions move, and while something is waited for."""


class ReassignmentReconciler:
    """Reconciles of every KafkaReassignment."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clusters = KafkaClusters(services)
        self._leaving = Leaving(services, self._clusters)
        self._locks: dict[str, asyncio.Lock] = {}

    def figures(self) -> dict[tuple[str, str], ThrottleFigures]:
        """Throttles by namespace and name, as they were last observed."""
        return self._clusters.figures()

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Returns after how many seconds it is to be reconciled again; None when nothing is left of it."""
        live = await self._services.kubernetes.get(KAFKA_REASSIGNMENT, namespace, name)
        record = await self._services.kubernetes.get(CONFIG_MAP, namespace, plan_name(name))
        if live is None or live["metadata"].get("deletionTimestamp"):
            return await self._leaving.leave(namespace, name, record)
        if record is not None and is_ours(record, name) and _uid_of(record) not in ("", live["metadata"]["uid"]):
            again = await self._leaving.leave(namespace, name, record)
            if again is not None:
                return again
            record = None
        try:
            resource = parse_reassignment(live)
        except InvalidSpec as error:
            await self._obstructed(live, Obstacle(Reason.INVALID_SPEC, str(error)))
            return self._services.resync
        try:
            return await self._reconcile(resource, live, record)
        except Obstacle as error:
            await self._obstructed(live, error)
            return SOON
        except Retryable as error:
            await self._obstructed(live, Obstacle(reason_of_silence(error), str(error)))
            raise
        except Permanent as error:
            await self._obstructed(live, Obstacle(Reason.REASSIGNMENT_REFUSED, str(error)))
            return self._services.resync

    async def _reconcile(self, resource: KafkaReassignment, live: Object, found: Object | None) -> float:
        services, status = self._services, resource.status
        if found is not None and not is_ours(found, resource.name):
            raise Obstacle(Reason.NAME_TAKEN, f"ConfigMap {plan_name(resource.name)} belongs to something else")
        record = read_plan_record(found) if found is not None else None
        asked = question(resource.spec)
        cluster = await self._clusters.of(resource)
        if record is not None and self._finished(resource, record, asked):
            left = await self._clusters.throttles(
                resource.namespace, resource.name, status.cluster_id, resource.spec.throttle
            ).read()
            if not left:
                await self._clusters.drop(resource.namespace, resource.name)
                return services.resync
        running = await self._clusters.open(resource.namespace, resource.name, cluster, resource.spec.throttle)
        seen = await self._clusters.ask(running, lambda: running.kafka.look(record.plan if record else None))
        if not running.cluster_id:
            running.cluster_id = await self._clusters.ask(running, running.kafka.cluster_id)
        if record is None or self._outdated(record, asked, running.cluster_id, seen, resource):
            record, status = await self._plan(resource, running, cluster, seen, asked, found)
            resource = replace(resource, status=status)
        record = await self._noted(resource, record, cluster, found)
        async with self._locks.setdefault(running.cluster_id, asyncio.Lock()):
            return await self._advance(resource, live, record, running, seen)

    async def _advance(
        self, resource: KafkaReassignment, live: Object, record: PlanRecord, running: OpenCluster, seen: Seen
    ) -> float:
        """One step of the plan, and the status. Holds the lock of the Kafka cluster: two must not begin at once."""
        services, spec, plan = self._services, resource.spec, record.plan
        now = services.wall()
        approved_at = resource.status.approved_at or services.now() if record.approved else ""
        standing = Standing(
            judge(plan, seen),
            approved=record.approved,
            ahead=await self._clusters.ahead(resource, running.cluster_id) if record.approved else "",
            overdue=overdue(spec, approved_at, now),
            superseded=plan.inputs != question(spec),
            absent=absent_from(plan, seen),
            strangers=strangers_to(spec, seen),
        )
        refused, unconfirmed = "", False
        if not services.dry_run and plan.moves:
            place, ended = (resource.namespace, resource.name), resource.status.ended_overrides
            throttling = await self._clusters.throttling(running, place, running.cluster_id, spec.throttle, ended)
            refused, unconfirmed = await self._clusters.ask(
                running, lambda: self._carry_on(running.kafka, plan, seen, standing, resource, throttling)
            )
        left = left_on(resource.spec, standing, seen)
        standing = replace(standing, cleaning=standing.done and unconfirmed, left_on=left)
        return await self._show(resource, live, plan, running, standing, approved_at, refused)

    async def _show(
        self,
        resource: KafkaReassignment,
        live: Object,
        plan: FrozenPlan,
        running: OpenCluster,
        standing: Standing,
        approved_at: str,
        refused: str,
    ) -> float:
        """Write the status and the Events; returns the seconds until the next reconcile."""
        services, rows = self._services, running.kafka.rows
        phase = phase_of(resource.spec, standing)
        changes = {
            "phase": phase.value,
            "cluster_id": running.cluster_id,
            "plan": shown_plan(resource.status.plan, plan, plan_name(resource.name)),
            "approved_at": approved_at,
            "progress": progress_of(plan, standing, rows if standing.moving else (), services.wall()),
            "ended_overrides": ended_overrides(
                resource.spec.throttle, resource.status.ended_overrides, completed=phase is Phase.COMPLETED
            ),
            "throttles": throttles_of(rows) if standing.moving else (),
        }
        conditions = conditions_of(resource.spec, plan, standing, rows, refused)
        await self._write(live, resource.status.model_copy(update=changes), conditions)
        for event in running.kafka.events():
            await services.kubernetes.emit(
                live, warning=event.warning, reason=event.reason, message=event.text, at=services.now()
            )
        if phase is Phase.COMPLETED:
            return BUSY if standing.left_on else services.resync
        if phase is Phase.AWAITING_APPROVAL:
            return services.resync  # an approval is an event
        return BUSY if phase is Phase.EXECUTING or standing.moving else SOON

    def _carry_on(
        self,
        kafka: ReassignmentKafka,
        plan: FrozenPlan,
        seen: Seen,
        standing: Standing,
        resource: KafkaReassignment,
        throttling: Throttling | None,
    ) -> tuple[str, bool]:
        """In a thread: throttle, start what may start. Returns what was refused, and whether throttles are left."""
        kafka.throttle(plan, throttling)
        pace = Pace(resource.spec.execution.in_flight, resource.spec.execution.per_broker or None)
        if not (standing.approved or standing.moving or kafka.throttles_something):
            kafka.foresee(plan, seen, pace)
            return "", False
        refused = kafka.start(plan, seen, pace) if may_start(resource.spec, standing) else ""
        return refused, kafka.round(at_once=standing.done)

    async def _plan(
        self,
        resource: KafkaReassignment,
        running: OpenCluster,
        cluster: KafkaCluster,
        seen: Seen,
        asked: str,
        found: Object | None,
    ) -> tuple[PlanRecord, KafkaReassignmentStatus]:
        """Make the plan and freeze it. Raises Obstacle when none can be computed."""
        inputs = await self._clusters.ask(running, lambda: running.kafka.inputs(seen))
        try:
            plan = make_plan(resource.spec, inputs)
        except Permanent as error:
            raise Obstacle(Reason.PLAN_FAILED, str(error)) from error
        sizes = inputs.storage.sizes
        frozen = freeze(
            running.cluster_id, seen.topic_ids, plan.before, plan.after, sizes, asked,
            phased=resource.spec.execution.phased,
        )  # fmt: skip
        record = PlanRecord(
            resource.uid, frozen, cluster, resource.spec.throttle, resource.spec.on_delete, approved=False
        )
        await self._services.kubernetes.apply(record.manifest(resource.namespace, resource.name), found)
        log.info("plan_frozen", name=resource.name, hash=frozen.hash, partitions=len(frozen.moves))
        shown = plan_status(plan, sizes, frozen.hash, plan_name(resource.name))
        status = resource.status.model_copy(update={"plan": shown, "approved_at": "", "cluster_id": running.cluster_id})
        return record, status

    def _outdated(
        self, record: PlanRecord, asked: str, cluster_id: str, seen: Seen, resource: KafkaReassignment
    ) -> bool:
        """Whether another plan has to be computed: the spec asks another question, or a partition is at neither end.

        Not before what moves has ended: two plans must not be mixed.
        """
        if record.plan.cluster_id != cluster_id:
            return True
        standing = Standing(judge(record.plan, seen), approved=True)
        if standing.moving:
            return False
        finished = standing.done and bool(left_on(resource.spec, standing, seen))
        return record.plan.inputs != asked or standing.invalid or finished

    def _finished(self, resource: KafkaReassignment, record: PlanRecord, asked: str) -> bool:
        status = resource.status
        return (
            status.phase == Phase.COMPLETED.value
            and status.plan.hash == record.plan.hash
            and record.plan.inputs == asked
            and status.observed_generation == resource.generation
        )

    async def _noted(
        self, resource: KafkaReassignment, record: PlanRecord, cluster: KafkaCluster, found: Object | None
    ) -> PlanRecord:
        """The record with the spec of now, written before anything moves by it."""
        spec = resource.spec
        approved = bool(record.plan.moves) and spec.approved_plan == record.plan.hash
        now = replace(
            record,
            cluster=cluster,
            throttle=spec.throttle,
            on_delete=spec.on_delete,
            approved=record.approved or approved,
        )
        if now != record:
            await self._services.kubernetes.apply(now.manifest(resource.namespace, resource.name), found)
        return replace(now, approved=approved)

    async def _obstructed(self, live: Object, obstacle: Obstacle) -> None:
        """Write what keeps it from continuing; conditions of other types stay as they are."""
        status, message = parse_status(live), str(obstacle)[:MESSAGE]
        if obstacle.reason in (Reason.KAFKA_UNREACHABLE, Reason.QUOTA_EXCEEDED):  # it passes by itself
            stated = [condition(ConditionType.EXECUTING, None, obstacle.reason, message)]
        else:
            stated = [condition(ConditionType.STALLED, True, obstacle.reason, message)]
            status = status.model_copy(update={"phase": Phase.STALLED.value})
        if obstacle.reason is Reason.PLAN_FAILED:
            stated.append(condition(ConditionType.PLAN_READY, False, Reason.PLAN_FAILED, message))
        keep = [one for one in status.conditions if one.type not in {new.type for new in stated}]
        await self._write(live, status, [*keep, *stated])

    async def _write(self, live: Object, status: KafkaReassignmentStatus, conditions: Sequence[Condition]) -> None:
        services, generation = self._services, live["metadata"]["generation"]
        before = parse_status(live)
        timed = with_times(services, before.conditions, conditions, generation)
        whole = status.model_copy(update={"conditions": timed, "observed_generation": generation})
        await report(services, KAFKA_REASSIGNMENT, live, before.conditions, whole, timed)


def _uid_of(found: Object) -> str:
    try:
        return read_plan_record(found).uid
    except Permanent:
        return ""
