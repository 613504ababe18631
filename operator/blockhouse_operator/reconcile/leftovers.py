"""Delete the topics of a deleted pipeline, where its spec asks for it, once no one consumes them any more.

Nothing keeps a pipeline from being deleted, so this is done from its last event. An operator that is not
there at that moment, or ends before the pods are gone, leaves the topics: keeping too much is the lesser evil.
"""

from __future__ import annotations

import asyncio

import structlog

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, POD, Object
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.adapters.topics import delete_topics
from blockhouse_operator.api import labels
from blockhouse_operator.api.names import from_template
from blockhouse_operator.api.resource import BlockAggregator, InvalidSpec, parse_block_aggregator
from blockhouse_operator.decide.references import references
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)

SOON = 5.0


class Leftovers:
    """Pipelines that are gone and whose topics are to go too."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._gone: dict[tuple[str, str], BlockAggregator] = {}

    def note(self, deleted: Object) -> bool:
        """Take note of a deleted BlockAggregator; returns whether something is left to be done."""
        try:
            pipeline = parse_block_aggregator(deleted)
        except InvalidSpec:
            return False
        if pipeline.spec.kafka.topic.deletion_policy != "Delete":
            return False
        self._gone[pipeline.namespace, pipeline.name] = pipeline
        return True

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Returns after how many seconds to look again; None when nothing is left."""
        pipeline = self._gone.get((namespace, name))
        if pipeline is None:
            return None
        kubernetes = self._services.kubernetes
        if await kubernetes.get(BLOCK_AGGREGATOR, namespace, name) is not None:
            del self._gone[namespace, name]  # made again: its topics are needed
            return None
        if await kubernetes.list(POD, namespace, labels.of_pipeline(name)):
            return SOON
        await self._delete(pipeline)
        del self._gone[namespace, name]
        return None

    async def _delete(self, pipeline: BlockAggregator) -> None:
        services, kafka = self._services, pipeline.spec.kafka
        contents = Contents(services.kubernetes, pipeline.namespace, services.folder)
        if missing := await contents.read(references(kafka)):
            log.warning("topics_left", pipeline=pipeline.name, why=missing[0])
            return
        topics = [from_template(kafka.topic.name_template, shard) for shard in range(pipeline.spec.shards)]
        for cluster in kafka.clusters:
            log.info("topics_deleted", pipeline=pipeline.name, cluster=cluster.name, topics=topics)
            if not cluster.retired and not services.dry_run:
                await asyncio.to_thread(delete_topics, contents.kafka(cluster), topics, services.fence)
