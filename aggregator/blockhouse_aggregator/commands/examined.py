"""The streams of a shard as their next owners would find them: what is committed, and whether they would continue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decisions, StreamMarkers, stream_subject
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.fetch import reaches
from blockhouse_aggregator.kafka.group import Committed
from blockhouse_aggregator.kafka.group_offsets import committed_offsets
from blockhouse_aggregator.protocol.takeover import Facts, NeedsSurvey, Start, Stop
from blockhouse_aggregator.runtime.ports import StreamFacts
from blockhouse_aggregator.runtime.stream.acceptance import decide
from blockhouse_aggregator.runtime.stream.resumption import facts_of, may_be_cut

_REACHES_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Examined:
    """A stream as an owner would find it now. `decision` is what an operator decided and no owner has taken up yet."""

    id: StreamId
    facts: Facts
    decision: str
    outcome: Start | Stop | NeedsSurvey


def examine(
    settings: AggregatorConfig, session: Session, without: Collection[str] = (), only: StreamId | None = None
) -> Sequence[Examined]:
    """Every stream of the shard's topic, or `only` one, but those of clusters in `without`, judged as its next owner
    would judge it without a decision. Raises Retryable or Permanent."""
    asked = [c for c in settings.kafka.clusters if c.name not in without and (only is None or c.name == only.cluster)]
    return [found for cluster in asked for found in _of_cluster(settings, session, cluster, only)]


def _of_cluster(
    settings: AggregatorConfig, session: Session, cluster: KafkaCluster, only: StreamId | None
) -> Iterator[Examined]:
    markers, decisions = StreamMarkers(session), Decisions(session)
    history = SchemaStore(session).identity()
    facts = ClusterFacts(cluster)
    topic = facts.topic(settings.kafka.topic)
    streams = [StreamId(cluster.name, settings.kafka.topic, partition) for partition in range(topic.partitions)]
    # Markers before offsets: in this order no owner that continues meanwhile makes the offsets look older.
    known_markers = {stream: markers.get(stream) for stream in streams if only in (None, stream)}
    committed = committed_offsets(cluster, settings.kafka.group, settings.kafka.topic)
    for stream, marker in known_markers.items():
        at = committed.get(stream, Committed(None))
        begin, end, epoch = facts.bounds(stream)
        known = StreamFacts(at.offset, at.metadata or "", begin, end, topic.topic_id, topic.compacted, epoch)
        decision = decisions.get(stream_subject(stream))
        judged = replace(facts_of(known, marker), history=history)
        if (recorded := judged.metadata) is not None and may_be_cut(judged, recorded, epoch):
            reached = reaches(cluster, stream, recorded.position, recorded.leader_epoch, _REACHES_SECONDS)
            judged = replace(judged, cut=not reached)
        yield Examined(stream, judged, decision.action if decision else "", decide(judged))
