"""Which streams a shard has."""

from __future__ import annotations

from blockhouse_operator.api.shard import ClickHouseShardIngestSpec


def expected_streams(spec: ClickHouseShardIngestSpec) -> tuple[str, ...]:
    """Every stream the shard has, as cluster/topic/partition."""
    topic = spec.kafka.topic
    return tuple(
        f"{cluster.name}/{topic.name}/{number}"
        for cluster in spec.kafka.clusters
        if not cluster.retired
        for number in range(topic.partitions)
    )
