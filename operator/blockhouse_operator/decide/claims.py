"""Two pipelines must not load the same topic, share a consumer group or a ZooKeeper subtree: the younger is refused.

A claim is on what the servers know, so two resources that call one Kafka cluster by different names are found too, as
long as they give it the same address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.resolve import zookeeper_root
from blockhouse_operator.api.resource import BlockAggregator

Claim = tuple[str, str]
"""Something on a server, and its name there."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """A pipeline that can be parsed, and when it was created (RFC 3339)."""

    pipeline: BlockAggregator
    created: str

    @property
    def age(self) -> tuple[str, str]:
        """Sorts older ones first; pipelines of one second by their UID."""
        return self.created, self.pipeline.uid


def undecided(claims: Collection[Claim], undisputed: Collection[Claim], unread: Collection[str]) -> str:
    """Why it is not known whether an older resource has a claim already, in words; empty where it is known.

    Claims that were `undisputed` before stay so: nothing that this operator cannot read is served by it meanwhile.
    """
    if not unread or set(claims) <= set(undisputed):
        return ""
    return (
        f"namespace {', '.join(sorted(unread))} cannot be read, and an older resource there may have what this one "
        "needs for itself: let the operator read it, or take it from the namespaces that it watches"
    )


def dispute(conflict: str, undecided: str) -> tuple[Reason, str] | None:
    """Why nothing is created for a resource: another one has, or may have, what it needs for itself."""
    if conflict:
        return Reason.CLAIM_CONFLICT, conflict
    return (Reason.CLAIMS_UNKNOWN, undecided) if undecided else None


def claims_of(pipeline: BlockAggregator) -> frozenset[Claim]:
    """What a pipeline must have for itself."""
    return frozenset(claim for claim, _ in _claims(pipeline))


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


def _claims(pipeline: BlockAggregator) -> Iterator[tuple[Claim, str]]:
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
