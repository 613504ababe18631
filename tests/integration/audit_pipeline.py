"""A topic that a test loads in the aggregators' place, with the commands `produce` and `audit`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from blockhouse import cli
from blockhouse.config.endpoints import ClickHouse, KafkaCluster
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit import AuditSpec
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.group_offsets import set_offsets
from e2e.stack import Stack


@dataclass
class Pipeline:
    """One topic in both clusters, one table on both replicas, and a configuration file that names them."""

    stack: Stack
    topic: str
    table: str
    file: Path
    manifest: Path

    @property
    def clusters(self) -> tuple[KafkaCluster, ...]:
        return tuple(KafkaCluster(name=n, bootstrap_servers=c.bootstrap) for n, c in self.stack.kafka.items())

    @property
    def replicas(self) -> tuple[ClickHouse, ...]:
        return tuple(ClickHouse(host=s.host, port=s.port) for s in self.stack.clickhouse.values())

    @property
    def spec(self) -> AuditSpec:
        return AuditSpec(
            self.clusters, self.topic, self.replicas, dead_letter_topic=f"{self.topic}.dead-letters", wait=20
        )

    def run(self, *arguments: str) -> int:
        with pytest.raises(SystemExit) as exit_:
            cli.main([arguments[0], "--config", str(self.file), *arguments[1:]])
        assert isinstance(exit_.value.code, int)
        return exit_.value.code

    def audit(self, *arguments: str) -> int:
        replicas = [f"--replica={r.host}:{r.port}" for r in self.replicas]
        return self.run("audit", *replicas, "--manifest", str(self.manifest), *arguments)

    def produce(self, *arguments: str) -> list[dict[str, Any]]:
        """Returns the manifest."""
        assert self.run("produce", "--manifest", str(self.manifest), *arguments) == 0
        return [json.loads(line) for line in self.manifest.read_text().splitlines()]

    def promise(self) -> None:
        """Commit the end of every stream as an aggregator does that has loaded everything."""
        for cluster in self.clusters:
            streams = [StreamId(cluster.name, self.topic, partition) for partition in range(2)]
            ends = {stream: (ClusterFacts(cluster).bounds(stream).end, "") for stream in streams}
            set_offsets(cluster, yaml.safe_load(self.file.read_text())["kafka"]["group"], ends)

    def store(self, messages: Iterable[dict[str, Any]]) -> None:
        """Insert the rows of these messages, as far as provenance goes, into the first replica."""
        values = ", ".join(
            f"('{m['cluster']}', {m['partition']}, {m['offset']}, {row})"
            for m in messages
            for row in m.get("row_numbers", range(m["rows"]))
        )
        names = "_kafka_cluster, _kafka_partition, _kafka_offset, _kafka_row"
        with Replica(self.replicas[0]) as replica:
            replica.query(
                f"INSERT INTO {self.table} ({names}) SELECT r.1, toUInt32(r.2), toUInt64(r.3), toUInt32(r.4)"
                f" FROM (SELECT arrayJoin([{values}]) AS r)"
            )
