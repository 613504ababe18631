"""A KafkaReassignment that was deleted: what it began ends, or is taken back, and its throttles are removed."""

from __future__ import annotations

import structlog

from blockhouse.fleet.frozen import Seen, Verdict, judge
from blockhouse_operator.adapters.kinds import Object
from blockhouse_operator.adapters.reassignment import ReassignmentKafka, Throttling
from blockhouse_operator.reconcile.reassignment_clusters import KafkaClusters
from blockhouse_operator.reconcile.reassignment_records import PlanRecord, is_ours, read_plan_record
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)

BUSY = 2.0
"""Seconds until the next look while something of it moves."""


class Leaving:
    """Deleted reassignments, by the records that outlive them."""

    def __init__(self, services: Services, clusters: KafkaClusters) -> None:
        self._services = services
        self._clusters = clusters

    async def leave(self, namespace: str, name: str, found: Object | None) -> float | None:
        """The resource is gone: end what it began. Returns when to look again; None when nothing is left."""
        if found is None or not is_ours(found, name):
            await self._clusters.drop(namespace, name)
            return None
        record = read_plan_record(found)
        if record.approved and not self._services.dry_run:
            running = await self._clusters.open(namespace, name, record.cluster, record.throttle)
            seen = await self._clusters.ask(running, lambda: running.kafka.look(record.plan))
            place, cluster_id = (namespace, name), record.plan.cluster_id
            throttling = await self._clusters.throttling(running, place, cluster_id, record.throttle)
            left = await self._clusters.ask(running, lambda: self._end(running.kafka, record, seen, throttling))
            if left:
                return BUSY
            if await self._clusters.throttles(namespace, name, record.plan.cluster_id, record.throttle).read():
                return self._services.resync  # of a broker that is not alive: it is cleaned when it returns
        await self._services.kubernetes.delete(found, why="its reassignment is gone, and nothing of it moves any more")
        await self._clusters.drop(namespace, name)
        log.info("reassignment_ended", name=name, on_delete=record.on_delete)
        return None

    def _end(self, kafka: ReassignmentKafka, record: PlanRecord, seen: Seen, throttling: Throttling | None) -> bool:
        """In a thread. Whether something moves, or is throttled, still."""
        kafka.throttle(record.plan, throttling)
        if record.on_delete == "Cancel":
            kafka.cancel(record.plan, seen)
        unconfirmed = kafka.round(at_once=True)
        return unconfirmed or Verdict.MOVING in judge(record.plan, seen).values()
