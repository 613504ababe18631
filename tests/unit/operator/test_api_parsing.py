"""A resource becomes a value, or the name of every field that is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import InvalidSpec, parse_block_aggregator, parse_shard_ingest
from tests.unit.operator.resources import block_aggregator, pipeline


def problems(*changes: tuple[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as caught:
        parse_block_aggregator(block_aggregator(*changes))
    return {problem.field: problem.message for problem in caught.value.problems}


def test_the_example_is_valid() -> None:
    parsed = pipeline()

    assert (parsed.name, parsed.namespace, parsed.generation) == ("events", "data", 3)
    assert parsed.spec.kafka.topic.name_template == "events-{shard}"
    assert parsed.reference()["uid"] == parsed.uid


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("spec.shards", 0), "spec.shards"),
        (("spec.shards", "two"), "spec.shards"),
        (("spec.kafka.clusters.0.name", "Not A Name"), "spec.kafka.clusters[0].name"),
        (("spec.kafka.groupTemplate", "events"), "spec.kafka.groupTemplate"),
        (("spec.aggregator", ...), "spec.aggregator"),
        (("spec.clickhouse.managed", ...), "spec.clickhouse"),
        (("spec.clickhouse.managed.storage.size", "0Gi"), "spec.clickhouse.managed.storage.size"),
        (("spec.clickhouse.managed.users.0.name", "default"), "spec.clickhouse.managed"),
        (("spec.kafka.topic.config", {"cleanup.policy": "compact,delete"}), "spec.kafka.topic"),
        (("spec.blocks.maxBytes", "65Mi"), "spec.blocks"),
        (("spec.blocks.maxAge", "2m"), "spec.blocks"),
        (("spec.kafka.sessionTimeout", "2h"), "spec.kafka"),
        (("spec.quorum", 5), "spec"),
        (("spec.shards", 51), "spec"),
        (("spec.zones.1.name", "dc-a"), "spec"),
        (("spec.zones.0.name", "a-0-b"), "spec.zones[0].name"),
        (("spec.zookeeper.ensembles.0.shards", {"from": 3, "to": 2}), "spec.zookeeper.ensembles[0].shards"),
        (("spec.tables.0.ddlFrom", {"configMapKeyRef": {"name": "a", "key": "b"}}), "spec.tables[0]"),
        (("metadata.name", "Events"), "metadata.name"),
        (("metadata.name", "e" * 29), "metadata.name"),
    ],
)
def test_a_fault_is_named_by_its_field(change: tuple[str, Any], field: str) -> None:
    assert list(problems(change)) == [field]


MANY = (("spec.shards", 2050), ("spec.zookeeper.ensembles.0.shards", {"from": 0, "to": 2049}))


def test_thousands_of_shards_can_be_declared_and_take_a_character_of_the_name() -> None:
    assert pipeline(*MANY, ("metadata.name", "e" * 27)).spec.shards == 2050
    assert "at most 27 characters" in problems(*MANY, ("metadata.name", "e" * 28))["metadata.name"]
    assert pipeline(("metadata.name", "e" * 28)).name == "e" * 28


def test_all_faults_are_named_at_once() -> None:
    found = problems(("spec.kafka.clusters.0.name", "X"), ("spec.aggregator", ...))

    assert set(found) == {"spec.kafka.clusters[0].name", "spec.aggregator"}


def test_no_value_is_quoted_for_it_may_be_a_secret_in_the_wrong_place() -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_block_aggregator(block_aggregator(("spec.kafka.clusters.0.sasl.secretRef", "hunter2")))

    assert "hunter2" not in str(caught.value)


def test_unknown_fields_of_a_newer_crd_do_not_stop_an_older_operator() -> None:
    assert pipeline(("spec.kafka.shinyNewField", 1)).spec == pipeline().spec


def test_a_status_that_cannot_be_read_counts_as_none() -> None:
    obj = block_aggregator(("status", {"conditions": "broken"}))

    assert parse_block_aggregator(obj).status.conditions == ()


def test_a_shard_is_resolved_and_reads_back_as_the_same_value() -> None:
    spec = resolve(pipeline(), 1)
    obj = {
        "metadata": {"name": "events-1", "namespace": "data", "uid": "u", "generation": 1},
        "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }

    assert parse_shard_ingest(obj).spec == spec
    assert spec.kafka.topic.name == spec.kafka.group == "events-1"
    assert spec.zookeeper.root == "/blockhouse/events"
    assert [replica.name for replica in spec.replicas] == [
        "events-1-dc-a-0",
        "events-1-dc-a-1",
        "events-1-dc-b-0",
        "events-1-dc-b-1",
    ]


def test_a_shard_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="has no shard 2"):
        resolve(pipeline(), 2)


def test_existing_replicas_are_counted_in_the_shard_and_in_their_zone() -> None:
    existing = ("spec.clickhouse", {"cluster": "events", "existing": {"hostTemplate": "chi-x-{shard}-{replica}"}})
    by_zone = ("spec.clickhouse", {"cluster": "events", "existing": {"hostTemplate": "ch-{zone}-{index}.s{shard}"}})

    hosts = [r.clickhouse_host for r in resolve(pipeline(existing), 1).replicas]
    moved = [r.clickhouse_host for r in resolve(pipeline(existing, ("spec.zones.1.firstReplica", 4)), 1).replicas]
    zoned = [r.clickhouse_host for r in resolve(pipeline(by_zone), 1).replicas]

    assert hosts == ["chi-x-1-0", "chi-x-1-1", "chi-x-1-2", "chi-x-1-3"]
    assert moved == ["chi-x-1-0", "chi-x-1-1", "chi-x-1-4", "chi-x-1-5"]
    assert zoned == ["ch-dc-a-0.s1", "ch-dc-a-1.s1", "ch-dc-b-0.s1", "ch-dc-b-1.s1"]


def test_two_kubernetes_clusters_with_the_same_resource_see_the_same_shard() -> None:
    ours = pipeline()
    theirs = replace(ours, uid="2b1f8a52-0000-4000-8000-00000000000f")

    assert resolve(ours, 0) == resolve(theirs, 0)
