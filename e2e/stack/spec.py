"""What a stack consists of, as one value that survives in the stack's folder; it knows nothing of processes."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.clickhouse_choice import chosen

HOST = "127.0.0.1"
"""Everything listens on loopback only: the servers have no passwords."""


@dataclass(frozen=True)
class StackSpec:
    """Sizes and settings of the servers. Raises ValueError, naming the field, for a number below one."""

    kafka_clusters: int = 2
    """Independent clusters, named a, b, c ..."""
    brokers: int = 1
    """Brokers of each cluster. With two, the first one is the only controller; from three on there are three."""
    shards: int = 1
    replicas: int = 2
    """Replicas of each shard."""
    kafka_heap: str = "256m"
    """Java's -Xmx of a broker."""
    kafka_full_jit: bool = False
    """Let brokers compile their busiest code once more: for high rates. It takes a third of a core for minutes."""
    kafka_properties: Mapping[str, str] = field(default_factory=dict)
    """Broker properties that override those of the template."""
    kafka_scram: Mapping[str, str] = field(default_factory=dict)
    """Passwords by user; when not empty, every broker has a SASL_PLAINTEXT listener (SCRAM-SHA-256) too."""
    kafka_tls: str = ""
    """Folder with `server.pem`, key (PKCS 8) and certificate, and `ca.crt`; with it that listener is SASL_SSL, and
    clients need a certificate of that authority."""
    clickhouse: str = field(default_factory=chosen)
    """Which server: "26.9", "18.16", or the path of a `clickhouse-server`; by default the value of CLICKHOUSE."""
    clickhouse_memory: int = 1_500_000_000
    """`max_memory_usage` of one query, bytes."""
    clickhouse_zk_timeout_ms: int = 10_000
    """Session time-out of ClickHouse with ZooKeeper: how long a dead replica still counts as active."""
    clickhouse_log_level: str = "information"
    merge_tree: Mapping[str, str] = field(default_factory=dict)
    """MergeTree settings of every ClickHouse server."""

    def __post_init__(self) -> None:
        for name in ("kafka_clusters", "brokers", "shards", "replicas"):
            if getattr(self, name) < 1:
                raise ValueError(f"a stack needs {name} >= 1, not {getattr(self, name)}")
        if self.kafka_clusters > len(string.ascii_lowercase):
            raise ValueError(f"kafka_clusters must be at most {len(string.ascii_lowercase)}")

    @property
    def cluster_names(self) -> tuple[str, ...]:
        return tuple(string.ascii_lowercase[: self.kafka_clusters])

    @property
    def replica_ids(self) -> tuple[tuple[int, int], ...]:
        """(shard, replica) of every ClickHouse server, from (1, 1)."""
        return tuple((s, r) for s in range(1, self.shards + 1) for r in range(1, self.replicas + 1))
