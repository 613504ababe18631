"""What restarts a pod and what does not."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import parse_block_aggregator
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.decide.seen import PodSeen, ReplicaSeen
from blockhouse_operator.desired.spec_hash import former_spec_hash, spec_hash
from tests.unit.operator.resources import pipeline


def revisions(*changes: tuple[str, Any]) -> dict[str, str]:
    spec = resolve(pipeline(*changes), 0)
    return {replica.name: spec_hash(spec, replica) for replica in spec.replicas}


BEFORE = revisions()


@pytest.mark.parametrize(
    "change",
    [
        ("spec.aggregator.image", "blockhouse/aggregator:0.2.0"),
        ("spec.clickhouse.managed.image", "blockhouse/clickhouse:19"),
        ("spec.clickhouse.managed.resources.limits.memory", "32Gi"),
        ("spec.kafka.clusters.0.bootstrapServers", "kafka-a-7:9093"),
        ("spec.kafka.clusters.0.retired", True),
        ("spec.quorum", 3),
        ("spec.kafka.sessionTimeout", "6s"),
        ("spec.blocks.maxAge", "3s"),
        ("spec.tables.1.blocks.maxAge", "3s"),
        ("spec.zookeeper.ensembles.0.servers", ["zk-9:2181"]),
        ("spec.aggregator.spark.conf", {"spark.task.cpus": "1"}),
        ("spec.security.runAsUser", 101),
    ],
)
def test_what_a_pod_is_created_from_outdates_every_replica(change: tuple[str, Any]) -> None:
    after = revisions(change)

    assert all(after[name] != BEFORE[name] for name in BEFORE)


@pytest.mark.parametrize(
    "change",
    [
        ("spec.shards", 5),
        ("spec.zones.1.replicas", 3),
        ("spec.kafka.topic.partitions", 8),
        ("spec.kafka.topic.config", {"retention.ms": "1"}),
        ("spec.kafka.topic.deletionPolicy", "Delete"),
        ("spec.clickhouse.managed.storage.size", "1Ti"),
        ("spec.clickhouse.managed.users", []),
        ("spec.clickhouse.managed.clusterSecretRef", {"name": "another"}),
        ("spec.clickhouse.remoteServers", "None"),
        ("spec.clickhouse.remoteServers", "Shard"),
        ("spec.tables.0.ddl", "CREATE TABLE db.clicks (day Date, more UInt8)"),
        ("spec.verifier.enabled", False),
        ("spec.rollout.paused", True),
        ("spec.suspend", True),
        ("spec.networkPolicy.enabled", False),
        ("spec.shardRemovalPolicy", "Drain"),
        ("spec.blocks.maxAge", "1s"),
        ("spec.aggregator.handoverAfter", "10s"),
    ],
)
def test_what_needs_no_restart_outdates_no_replica(change: tuple[str, Any]) -> None:
    after = revisions(change)

    assert {name: after[name] for name in BEFORE} == BEFORE


def test_a_zones_nodes_concern_its_own_replicas_only() -> None:
    after = revisions(("spec.zones.0.nodeSelector", {"disk": "nvme"}))

    assert {name for name in BEFORE if after[name] != BEFORE[name]} == {"events-0-dc-a-0", "events-0-dc-a-1"}


def test_a_field_of_a_later_version_changes_no_revision() -> None:
    class Later(ClickHouseShardIngestSpec):
        new_setting: str = "as before"

    spec = resolve(pipeline(), 0)
    later = Later.model_validate(spec.model_dump(by_alias=True))

    assert [spec_hash(later, replica) for replica in later.replicas] == list(BEFORE.values())


RELEASED = """
metadata: {name: p, namespace: n, uid: u, generation: 1}
spec:
  shards: 1
  zones: [{name: z, replicas: 2}]
  kafka:
    groupTemplate: g-{shard}
    topic: {nameTemplate: "t-{shard}", partitions: 2}
    clusters: [{name: k, bootstrapServers: "k:9092"}]
  clickhouse: {cluster: c, managed: {image: "ch:1", storage: {size: 1Gi}}}
  zookeeper: {ensembles: [{name: e, shards: {from: 0, to: 0}, servers: ["zk:2181"]}]}
  aggregator: {image: "a:1"}
"""


def test_revisions_are_the_same_in_every_version_of_the_operator() -> None:
    """If this fails, an upgrade of the operator would restart every pod of every user: never change the right side."""
    spec = resolve(parse_block_aggregator(yaml.safe_load(RELEASED)), 0)

    assert [former_spec_hash(spec, replica) for replica in spec.replicas] == ["402ee3e6825c", "3b32b03d2b25"]
    assert [spec_hash(spec, replica) for replica in spec.replicas] == ["c10b82159a01", "de562bdb7576"]


def test_a_pod_of_an_earlier_operator_runs_on_until_the_users_change() -> None:
    def outdated(*changes: tuple[str, Any]) -> bool:
        spec = resolve(pipeline(*changes), 0)
        mine = spec.replicas[0]
        pod = PodSeen(ready=True, spec_hash=former_spec_hash(resolve(pipeline(), 0), mine))
        seen = ReplicaSeen(mine.name, mine.zone, spec_hash(spec, mine), former_spec_hash(spec, mine), scale=1, pod=pod)
        return seen.outdated

    assert not outdated()
    assert outdated(("spec.clickhouse.managed.users", []))
    assert outdated(("spec.aggregator.image", "blockhouse/aggregator:0.2.0"))


def test_a_pod_without_a_hash_is_outdated() -> None:
    assert ReplicaSeen("r", "z", "new", scale=1, pod=PodSeen(ready=True)).outdated
