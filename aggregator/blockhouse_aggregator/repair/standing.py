"""What the group has committed of a stream, and whether that can be built upon: only what is done is anyone else's.

An owner inserts from its tables' cursors and in-flight blocks upwards, and nothing below. That holds as long as the
stream's committed metadata is its newest and no operator lets it begin again further back: so both are asked again
right before every insert.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.commands.examined import Examined, examine
from blockhouse_aggregator.coordination.markers import StreamMarkers
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.protocol.takeover import NeedsSurvey, Start, Stop
from blockhouse_aggregator.repair.judging import done_below

IMPOSSIBLE = 3


class RepairRefused(BlockhouseError):
    """Nothing may be loaded, or nothing can be known: the text has why, and what to do."""

    exit_code = IMPOSSIBLE


@dataclass(frozen=True, slots=True)
class Standing:
    """A stream that its next owner would continue. `former`: its topic was created again since it was started first,
    as far as is known."""

    stream: StreamId
    cluster: KafkaCluster
    metadata: Metadata
    log_begin: int
    former: bool

    @property
    def topic_id(self) -> str:
        return self.metadata.topic_id

    @property
    def position(self) -> int:
        return self.metadata.position

    def done_below(self, table_id: int | None) -> int:
        """See `judging.done_below`."""
        return done_below(self.metadata, table_id)


def standing(settings: AggregatorConfig, session: Session, stream: StreamId) -> Standing:
    """How the stream stands now. Raises RepairRefused, and Retryable or Permanent of the servers."""
    cluster = next((c for c in settings.kafka.clusters if c.name == stream.cluster), None)
    if cluster is None or stream.topic != settings.kafka.topic:
        known = ", ".join(f"{c.name}/{settings.kafka.topic}/N" for c in settings.kafka.clusters)
        raise RepairRefused(f"{stream} is no stream of this shard, which has {known}")
    found = next(iter(examine(settings, session, only=stream)), None)
    if found is None:
        raise RepairRefused(f"{stream}: the topic has no such partition in cluster {cluster.name}")
    if refusal := why_not(found):
        raise RepairRefused(f"{stream}: {refusal}")
    assert found.facts.metadata is not None  # `why_not` refuses a stream without
    marker = StreamMarkers(session).get(stream)
    former = marker is None or bool(marker.former)
    return Standing(stream, cluster, found.facts.metadata, found.facts.log_begin, former)


def why_not(found: Examined) -> str:
    """Why nothing of the stream may be loaded by hand now; empty when it may."""
    if found.decision:
        return f"an operator's decision ({found.decision}) is not carried out yet: wait until its owner has taken it up"
    match found.outcome:
        case Stop(reason=reason, message=message):
            return f"it stands still ({reason}: {message}): decide about that first, see `blockhouse streams list`"
        case Start() if found.facts.metadata is not None:
            return ""
        case Start() | NeedsSurvey():
            return "nothing of it is committed by an aggregator of this kind yet: let one load it first"
