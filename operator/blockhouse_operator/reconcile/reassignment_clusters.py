"""The Kafka clusters that reassignments work on: how each is reached, and its throttle; kept between reconciles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from blockhouse.config.units import seconds
from blockhouse.errors import Permanent
from blockhouse.fleet.throttle_figures import ThrottleFigures
from blockhouse_operator.adapters.instance_types import instance_types
from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, CONFIG_MAP, KAFKA_REASSIGNMENT
from blockhouse_operator.adapters.reassignment import ReassignmentKafka, Throttling
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.kafka import KafkaCluster
from blockhouse_operator.api.reassignment import ReassignmentThrottle
from blockhouse_operator.api.resource import InvalidSpec, KafkaReassignment, parse_block_aggregator
from blockhouse_operator.decide.reassignment_queue import Queue, candidate_of, goes_first
from blockhouse_operator.decide.reassignment_throttle import overrides_of, settings_of
from blockhouse_operator.decide.references import references
from blockhouse_operator.reconcile.reassignment_records import ThrottleRecord, read_plan_record
from blockhouse_operator.reconcile.services import Services

Result = TypeVar("Result")
TYPES_SECONDS = 300.0
"""How long instance types of brokers are believed."""


class Obstacle(Exception):
    """A reassignment cannot continue until a person changes something."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass
class OpenCluster:
    """A Kafka cluster in use by one reassignment; made again when its address or a Secret changes."""

    server: str
    """As `Troubles` knows it, the same for every resource that uses it."""
    access: tuple[str, str]
    kafka: ReassignmentKafka
    cluster_id: str = ""
    types: Mapping[int, str] = field(default_factory=dict)
    """Instance types of brokers, where the capacity is given by them."""
    types_due: float = float("-inf")


class KafkaClusters:
    """One connection for each reassignment."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._running: dict[tuple[str, str], OpenCluster] = {}

    def figures(self) -> dict[tuple[str, str], ThrottleFigures]:
        """Throttles of every reassignment, by namespace and name, as they were last observed."""
        return {place: running.kafka.figures for place, running in self._running.items()}

    async def of(self, resource: KafkaReassignment) -> KafkaCluster:
        """The Kafka cluster, by itself or by reference. Raises Obstacle."""
        spec = resource.spec
        if spec.cluster is not None:
            return spec.cluster
        reference = spec.cluster_ref
        assert reference is not None
        found = await self._services.kubernetes.get(BLOCK_AGGREGATOR, resource.namespace, reference.block_aggregator)
        if found is None:
            raise Obstacle(Reason.INVALID_SPEC, f"spec.clusterRef: no BlockAggregator {reference.block_aggregator}")
        try:
            clusters = parse_block_aggregator(found).spec.kafka.clusters
        except InvalidSpec as error:
            raise Obstacle(Reason.INVALID_SPEC, f"spec.clusterRef: {error}") from error
        for cluster in clusters:
            if cluster.name == reference.cluster:
                return cluster
        known = ", ".join(cluster.name for cluster in clusters)
        raise Obstacle(
            Reason.INVALID_SPEC,
            f"spec.clusterRef: BlockAggregator {reference.block_aggregator} has Kafka clusters {known}, "
            f"not {reference.cluster}",
        )

    async def open(
        self, namespace: str, name: str, cluster: KafkaCluster, throttle: ReassignmentThrottle
    ) -> OpenCluster:
        contents = Contents(self._services.kubernetes, namespace, self._services.folder)
        missing = await contents.read(references((cluster, throttle.load)))
        if missing:
            raise Obstacle(Reason.SECRET_MISSING, "; ".join(missing))
        access = (cluster.model_dump_json() + throttle.load.model_dump_json(), contents.version())
        known = self._running.get((namespace, name))
        if known is not None and known.access == access:
            return known
        await self.drop(namespace, name)
        made = OpenCluster(
            f"kafka {cluster.bootstrap_servers}",
            access,
            ReassignmentKafka(
                contents.kafka(cluster), contents.load(throttle.load), self._services.fence, self._services.clock
            ),
        )
        self._running[namespace, name] = made
        return made

    async def drop(self, namespace: str, name: str) -> None:
        known = self._running.pop((namespace, name), None)
        if known is not None:
            await asyncio.to_thread(known.kafka.close)

    async def ask(self, running: OpenCluster, work: Callable[[], Result]) -> Result:
        """Work on a Kafka cluster, in a thread. One that did not answer a moment ago is not asked: Retryable."""
        answers: list[Result] = []

        async def ask() -> None:
            answers.append(await asyncio.to_thread(work))

        await self._services.troubles.ask(running.server, ask)
        return answers[0]

    async def throttling(
        self, running: OpenCluster, place: tuple[str, str], cluster_id: str, throttle: ReassignmentThrottle,
        ended: Collection[str] = (),
    ) -> Throttling | None:  # fmt: skip
        """How a reassignment (namespace and name) is throttled; None when it is not. `ended` overrides are over."""
        if not throttle.enabled:
            return None
        store = self.throttles(*place, cluster_id, throttle, ended)
        settings = settings_of(throttle, await self._types(running, place[0], throttle))
        return Throttling(settings, store.overrides(), seconds(throttle.interval), store)

    def throttles(
        self, namespace: str, name: str, cluster_id: str, throttle: ReassignmentThrottle, ended: Collection[str] = ()
    ) -> ThrottleRecord:
        overrides = overrides_of(throttle, ended)
        return ThrottleRecord(
            self._services.kubernetes, namespace, name, cluster_id, overrides, asyncio.get_running_loop()
        )

    async def _types(self, running: OpenCluster, namespace: str, throttle: ReassignmentThrottle) -> Mapping[int, str]:
        """Instance types of brokers, asked for now and then: a broker's pod may come to another node."""
        if not throttle.capacity.by_instance_type:
            return {}
        now = self._services.clock()
        if now >= running.types_due:
            hosts = await self.ask(running, running.kafka.hosts)
            running.types = await instance_types(self._services.kubernetes, hosts, namespace)
            running.types_due = now + TYPES_SECONDS
        return running.types

    async def ahead(self, resource: KafkaReassignment, cluster_id: str) -> str:
        """Which reassignment of the same Kafka cluster goes first; empty when this one does."""
        kubernetes, namespaces = self._services.kubernetes, self._services.namespaces
        live, unread = await namespaces.list(kubernetes, KAFKA_REASSIGNMENT)
        records, without = await namespaces.list(kubernetes, CONFIG_MAP, {labels.COMPONENT: "reassignment"})
        # A namespace may have become unreadable in between: its records are not those of deleted reassignments.
        unread = tuple(sorted({*unread, *without}))
        records = [found for found in records if found["metadata"]["namespace"] not in unread]
        uids = {found["metadata"]["uid"] for found in live}
        leaving = {}
        for found in records:
            try:
                record = read_plan_record(found)
            except Permanent:
                continue  # reported where it belongs
            if record.uid not in uids and record.approved:
                meta = found["metadata"]
                leaving[record.plan.cluster_id] = f"{meta['namespace']}/{meta['labels'][labels.REASSIGNMENT]}"
        return goes_first(
            Queue(tuple(map(candidate_of, live)), leaving, unread), f"{resource.namespace}/{resource.name}", cluster_id
        )
