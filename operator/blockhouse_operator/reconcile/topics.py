"""Keep a shard's topic in every Kafka cluster as the spec says. A cluster that does not answer holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.adapters.topics import carry_out, observe_topics
from blockhouse_operator.api import kafka
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.api.status import TopicStatus
from blockhouse_operator.decide.topics import TopicStep, TopicWanted, plan_topics
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)

LOOK_AGAIN_SECONDS = 60.0
"""A topic found as specified is looked at again only after so long: its cluster is asked for all its partitions."""

TROUBLE_LASTS_SECONDS = 5.0
PATIENCE_SECONDS = 2.0
"""How long a turn waits for a Kafka cluster. One that does not answer takes half a minute to say so."""


@dataclass(frozen=True, slots=True)
class _Kept:
    wanted: TopicWanted
    access: str
    until: float
    status: TopicStatus


class TopicKeeper:
    """What was found a moment ago is kept, so that a turn caused by a pod asks no Kafka cluster."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._looking: dict[tuple[str, str], asyncio.Task[TopicStatus]] = {}

    async def keep(
        self, spec: ClickHouseShardIngestSpec, contents: Contents, before: Sequence[TopicStatus]
    ) -> tuple[tuple[TopicStatus, ...], Mapping[str, str]]:
        """The topic in every cluster that is not retired, and clusters that do not answer with why.

        `before` is what was said last: it stands until a cluster has answered.
        """
        known = {status.cluster: status for status in before}
        topic = spec.kafka.topic
        wanted = TopicWanted(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            dict(topic.config),
            rack_aware=topic.placement == "RackAware",
        )
        clusters = [cluster for cluster in spec.kafka.clusters if not cluster.retired]
        found = await asyncio.gather(
            *(self._keep_in(cluster, wanted, contents, known.get(cluster.name)) for cluster in clusters)
        )
        trouble = {s.cluster: s.message for s in found if s.state == Reason.KAFKA_UNREACHABLE.value}
        return tuple(found), trouble

    async def _keep_in(
        self, cluster: kafka.KafkaCluster, wanted: TopicWanted, contents: Contents, before: TopicStatus | None
    ) -> TopicStatus:
        place = (cluster.bootstrap_servers, wanted.name)
        access = contents.version() if cluster.tls or cluster.sasl else ""
        kept, now = self._kept.get(place), self._services.clock()
        if kept and (kept.wanted, kept.access) == (wanted, access) and now < kept.until:
            return kept.status
        if place not in self._looking:
            self._looking[place] = asyncio.create_task(self._look(place, cluster, wanted, access, contents))
        done, _ = await asyncio.wait({self._looking[place]}, timeout=PATIENCE_SECONDS)
        if done:
            return self._looking.pop(place).result()
        # It goes on by itself; until it has an answer the last one stands, so that no cluster delays another.
        last = kept.status if kept else before
        return last or _status(cluster.name, Reason.PROGRESSING, "the cluster is being asked")

    async def _look(
        self, place: tuple[str, str], cluster: kafka.KafkaCluster, wanted: TopicWanted, access: str, contents: Contents
    ) -> TopicStatus:
        status = await self._look_and_repair(cluster, wanted, contents)
        well = status.state == Reason.AS_SPECIFIED.value
        until = self._services.clock() + (LOOK_AGAIN_SECONDS if well else TROUBLE_LASTS_SECONDS)
        self._kept[place] = _Kept(wanted, access, until, status)
        return status

    async def _look_and_repair(
        self, cluster: kafka.KafkaCluster, wanted: TopicWanted, contents: Contents
    ) -> TopicStatus:
        status: TopicStatus | None = None

        async def ask() -> None:
            nonlocal status
            status = await asyncio.to_thread(self._repair, contents.kafka(cluster), wanted)

        try:
            await self._services.troubles.ask(f"kafka {cluster.bootstrap_servers}", ask)
        except Retryable as error:
            return _status(cluster.name, Reason.KAFKA_UNREACHABLE, str(error))
        except Permanent as error:
            return _status(cluster.name, Reason.TOPIC_FAILED, str(error))
        except KeyError as error:
            return _status(cluster.name, Reason.SECRET_MISSING, f"Secret {error} is missing")
        assert status is not None
        return status

    def _repair(self, cluster: KafkaCluster, wanted: TopicWanted) -> TopicStatus:
        """In a thread. Looks again after what it did, so that the status says what is, not what was asked for."""
        plan = plan_topics([wanted], observe_topics(cluster, [wanted.name]))
        if plan.steps:
            for step in plan.steps:
                log.info("topic_step", cluster=cluster.name, topic=wanted.name, step=_words(step))
            if not self._services.dry_run:
                carry_out(cluster, plan.steps, self._services.fence)
        seen = observe_topics(cluster, [wanted.name])
        left = plan_topics([wanted], seen)
        count = sum(key.topic == wanted.name for key in seen.partitions)
        if left.faults:
            compacted = any("compacted" in fault for fault in left.faults)
            reason = Reason.TOPIC_COMPACTED if compacted else Reason.TOPIC_DRIFT
            return _status(cluster.name, reason, "; ".join(left.faults), count)
        if left.steps:
            return _status(cluster.name, Reason.PROGRESSING, f"{_words(left.steps[0])} of {wanted.name}", count)
        return _status(cluster.name, Reason.AS_SPECIFIED, "", count)


def _words(step: TopicStep) -> str:
    return type(step).__name__


def _status(cluster: str, reason: Reason, message: str, partitions: int = 0) -> TopicStatus:
    return TopicStatus(cluster=cluster, partitions=partitions, state=reason.value, message=message[:2000])
