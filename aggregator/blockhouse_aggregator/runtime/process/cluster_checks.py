"""What a process asks each of its Kafka clusters at its start, and why it must not work with one.

Intents are as durable as __consumer_offsets: weak settings are a warning, or a refusal. Two clusters of a configuration
that are one would have every row loaded twice, under both names: their addresses are compared with the configuration,
but that two addresses lead to the same brokers only the brokers know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.runtime.tables.hazards import HazardWatch

log = structlog.get_logger(__name__)

PERIOD, UNKNOWN_PERIOD = 30.0, 5.0
"""Seconds between two questions for the topic's partitions, and while they are not known."""


@dataclass(slots=True)
class ClusterChecks:
    """One per process. `refuse` is called with a reason (CamelCase) that ends the process; the hazards learn how many
    partitions the topic has."""

    config: AggregatorConfig
    hazards: HazardWatch
    refuse: Callable[[str], None]
    partitions: dict[str, int] = field(default_factory=dict)
    """Of the topic, by cluster, as last answered."""
    _names: dict[str, str] = field(default_factory=dict)

    async def watch(self, facts: ClusterFacts, cluster: str) -> None:
        """Check the cluster, then ask now and then how many partitions the topic has, until cancelled."""
        await self.check(facts, cluster)
        while True:
            await asyncio.sleep(UNKNOWN_PERIOD if cluster not in self.partitions else PERIOD)
            try:
                self._has(cluster, await asyncio.to_thread(facts.partitions, self.config.kafka.topic))
            except BlockhouseError as error:  # its member reports a cluster that is silent
                log.debug("kafka.partitions_unasked", cluster=cluster, error=str(error))

    async def check(self, facts: ClusterFacts, cluster: str) -> None:
        """Ask once; what cannot be asked now is logged and not checked. Raises nothing."""
        try:
            if self._is_another(await asyncio.to_thread(facts.cluster_id), cluster):
                self.refuse("ClustersAreOne")
            if await self._too_weak(facts, cluster):
                self.refuse("WeakOffsetsTopic")
        except BlockhouseError as error:
            log.warning("kafka.not_checked", cluster=cluster, error=str(error))

    def _has(self, cluster: str, partitions: int) -> None:
        self.partitions[cluster] = partitions
        self.hazards.topic_has(partitions)

    def _is_another(self, identity: str, cluster: str) -> bool:
        other = self._names.setdefault(identity, cluster)
        if other == cluster:
            return False
        log.error("kafka.clusters_are_one", clusters=sorted([cluster, other]), cluster_id=identity)
        return True

    async def _too_weak(self, facts: ClusterFacts, cluster: str) -> bool:
        found = await asyncio.to_thread(facts.offsets_topic)
        topic = await asyncio.to_thread(facts.topic, self.config.kafka.topic)
        self._has(cluster, topic.partitions)
        if found.durable:
            return False
        log.warning("kafka.offsets_topic_weak", cluster=cluster, warning=found.warning)
        return self.config.kafka.weak_offsets_topic == "refuse"
