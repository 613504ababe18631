"""Two pipelines must not load the same topic, share a consumer group or a ZooKeeper subtree: the younger is refused.

A claim is on what the servers know, so two resources that call one Kafka cluster by different names are found too, as
long as they give it the same address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blockhouse_operator.api.resolve import zookeeper_root
from blockhouse_operator.api.resource import BlockAggregator


@dataclass(frozen=True, slots=True)
class Claimant:
    """A pipeline that can be parsed, and when it was created (RFC 3339)."""

    pipeline: BlockAggregator
    created: str

    @property
    def age(self) -> tuple[str, str]:
        """Sorts older ones first; pipelines of one second by their UID."""
        return self.created, self.pipeline.uid


def conflict(mine: Claimant, others: Sequence[Claimant]) -> str | None:
    """What an older pipeline has claimed already, in words; None when nothing is disputed."""
    claims = dict(_claims(mine.pipeline))
    for other in sorted(others, key=lambda claimant: claimant.age):
        if other.pipeline.uid == mine.pipeline.uid or other.age > mine.age:
            continue
        for claim, words in _claims(other.pipeline):
            if claim in claims:
                owner = f"{other.pipeline.namespace}/{other.pipeline.name}"
                return f"{words} belongs to the older BlockAggregator {owner}; give this one another"
    return None


def _claims(pipeline: BlockAggregator) -> Iterator[tuple[tuple[str, str], str]]:
    spec = pipeline.spec
    for cluster in spec.kafka.clusters:
        for server in cluster.bootstrap_servers.split(","):
            topic, group = spec.kafka.topic.name_template, spec.kafka.group_template
            yield (f"topic {server.strip()}", topic), f"topic {topic} at {server.strip()}"
            yield (f"group {server.strip()}", group), f"consumer group {group} at {server.strip()}"
    root = zookeeper_root(pipeline)
    for ensemble in spec.zookeeper.ensembles:
        for server in ensemble.servers:
            yield (f"root {server}", root), f"ZooKeeper subtree {root} at {server}"
