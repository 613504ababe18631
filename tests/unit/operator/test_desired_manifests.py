"""What the manifests must and must not be, whatever the golden files contain."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from blockhouse.config.load import parse as parse_config
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import ClickHouseShardIngest, parse_shard_ingest
from blockhouse_operator.desired import aggregator, shard
from blockhouse_operator.desired.clickhouse import Passwords
from blockhouse_operator.desired.credentials import Credentials
from blockhouse_operator.desired.own_secrets import own_secrets
from tests.unit.operator.resources import pipeline

EXISTING = ("spec.clickhouse", {"cluster": "events", "existing": {"hostTemplate": "chi-x-{shard}-{replica}"}})
Objects = dict[tuple[str, str], dict[str, Any]]


def first_shard(*changes: tuple[str, Any]) -> ClickHouseShardIngest:
    found = aggregator.shard_ingest(pipeline(*changes), 0)
    return parse_shard_ingest({**found, "metadata": {**found["metadata"], "uid": "of-the-shard"}})


def shard_objects(*changes: tuple[str, Any], zones: list[str] | None = None) -> Objects:
    return {(o["kind"], o["metadata"]["name"]): o for o in shard.children(first_shard(*changes), zones)}


def pipeline_objects(*changes: tuple[str, Any], zones: list[str] | None = None) -> Objects:
    return {(o["kind"], o["metadata"]["name"]): o for o in aggregator.children(pipeline(*changes), zones)}


def pod_specs(objects: Objects) -> list[dict[str, Any]]:
    return [o["spec"]["template"]["spec"] for (kind, _), o in objects.items() if kind in ("StatefulSet", "Deployment")]


def test_an_operator_makes_only_the_pods_of_the_zones_it_serves() -> None:
    ours = shard_objects(zones=["dc-a"])
    theirs = shard_objects(zones=["dc-b"])

    assert [name for kind, name in ours if kind == "StatefulSet"] == ["events-0-dc-a-0", "events-0-dc-a-1"]
    assert [name for kind, name in theirs if kind == "StatefulSet"] == ["events-0-dc-b-0", "events-0-dc-b-1"]
    assert shard_objects(zones=["elsewhere"]) == {}


def test_one_verifier_is_enough_for_all_zones() -> None:
    assert ("Deployment", "events-verifier") in pipeline_objects(zones=["dc-a"])
    assert ("Deployment", "events-verifier") not in pipeline_objects(zones=["dc-b"])
    assert ("Deployment", "events-verifier") not in pipeline_objects(("spec.verifier.enabled", False))


def test_both_operators_list_all_replicas_of_all_zones() -> None:
    ours, theirs = pipeline_objects(zones=["dc-a"]), pipeline_objects(zones=["dc-b"])
    key = ("ConfigMap", "events-cluster")

    hosts = [e.text for e in ElementTree.fromstring(ours[key]["data"]["remote_servers.xml"]).iter("host")]

    assert ours[key]["data"] == theirs[key]["data"]
    assert hosts == [f"events-{s}-{z}-{i}.data.svc" for s in (0, 1) for z in ("dc-a", "dc-b") for i in (0, 1)]


def listed(text: str) -> list[str | None]:
    return [e.text for e in ElementTree.fromstring(text).iterfind(".//replica/host")]


@pytest.mark.parametrize("mode", ["Full", "Shard", "None"])
def test_servers_list_all_replicas_those_of_their_shard_or_none(mode: str) -> None:
    change = ("spec.clickhouse.remoteServers", mode)
    secret = aggregator.clickhouse_secret(pipeline(change), Passwords({"cluster": "p"}))
    shared = listed(b64decode(secret["data"]["remote_servers.xml"]).decode())
    own = listed(shard_objects(change)["ConfigMap", "events-0-config"]["data"]["config.xml"])

    assert (len(shared), len(own)) == {"Full": (8, 0), "Shard": (0, 4), "None": (0, 0)}[mode]
    assert (("ConfigMap", "events-cluster") in pipeline_objects(change)) == (mode == "Full")
    assert '"p"' not in json.dumps(list(shard_objects(change).values()))


MANY = (("spec.shards", 2050), ("spec.zookeeper.ensembles.0.shards", {"from": 0, "to": 2049}))


def test_a_list_of_thousands_of_shards_is_refused_with_the_field_to_change() -> None:
    assert "set it to Shard or None" in aggregator.oversize(pipeline(*MANY))
    assert aggregator.oversize(pipeline()) == ""


@pytest.mark.parametrize("mode", ["Full", "Shard", "None"])
@pytest.mark.parametrize("shards", [2, 900, 1000, 1100, 1200, 2050])
def test_what_is_not_refused_fits_into_its_objects(mode: str, shards: int) -> None:
    found = pipeline(*MANY, ("spec.shards", shards), ("spec.clickhouse.remoteServers", mode))
    logins = {user.name: "x" * 43 for user in found.spec.clickhouse.managed.users}  # type: ignore[union-attr]
    secret = aggregator.clickhouse_secret(found, Passwords({"cluster": "x" * 43}, logins))
    size = sum(len(b64decode(value)) for value in secret["data"].values())

    assert (aggregator.oversize(found) == "") == (size <= 1 << 20)
    if mode == "Full" and not aggregator.oversize(found):
        assert len(aggregator.cluster_config(found)["data"]["remote_servers.xml"]) <= 1 << 20


@pytest.mark.parametrize("changes", [(), (EXISTING,)])
def test_every_pod_runs_without_rights_without_root_and_writes_only_into_volumes(changes: Any) -> None:
    objects = {**pipeline_objects(*changes), **shard_objects(*changes)}

    for spec in pod_specs(objects):
        account = objects.get(("ServiceAccount", spec["serviceAccountName"]))
        assert account is not None
        assert account["automountServiceAccountToken"] is False
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
    assert not [kind for kind, _ in objects if kind in ("Role", "RoleBinding", "ClusterRole")]


@pytest.mark.parametrize("changes", [(), (EXISTING,)])
def test_every_mount_has_its_volume_and_every_volume_a_mount(changes: Any) -> None:
    for spec in pod_specs({**pipeline_objects(*changes), **shard_objects(*changes)}):
        mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_no_secret_is_in_any_manifest() -> None:
    text = json.dumps([*pipeline_objects().values(), *shard_objects().values()])

    assert '"kind": "Secret"' not in text
    assert "stringData" not in text


def test_the_aggregators_file_is_what_the_aggregator_reads() -> None:
    changes = (
        *(("spec.blocks.maxBytes", "20Mi"), ("spec.quorum", 3)),
        *(("spec.kafka.sessionTimeout", "6s"), ("spec.kafka.offsetMetadataMaxBytes", 16384)),
    )
    data = shard_objects(*changes)[("ConfigMap", "events-0-config")]["data"]

    config = parse_config(data["events-0-dc-b-1.yaml"])

    assert (config.pipeline, config.shard, config.replica) == ("events", "0", "events-0-dc-b-1")
    assert config.clickhouse.host == "127.0.0.1"
    assert config.quorum.replicas == 3
    assert config.blocks.max_bytes == 20 << 20
    assert (config.kafka.session_timeout, config.kafka.heartbeat_interval) == (6, 0.5)
    assert config.kafka.offset_metadata_max_units == 16383
    assert config.blocks.tables["db.views"].max_age == 5
    assert config.zookeeper.servers == "zk-0.zk:2181,zk-1.zk:2181,zk-2.zk:2181"
    assert str(config.kafka.clusters[1].sasl and config.kafka.clusters[1].sasl.password.file).startswith("/etc/")
    assert config.admin.token is not None


def test_every_file_that_the_settings_name_is_mounted_there() -> None:
    objects = shard_objects()
    text = objects[("ConfigMap", "events-0-config")]["data"]["events-0-dc-a-0.yaml"]
    spec = objects[("StatefulSet", "events-0-dc-a-0")]["spec"]["template"]["spec"]
    mounts = {m["name"]: m["mountPath"] for c in spec["containers"] for m in c["volumeMounts"]}
    there = set()
    for volume in spec["volumes"]:
        sources = [volume[kind] for kind in ("secret", "configMap") if kind in volume]
        sources += [source["secret"] for source in volume.get("projected", {}).get("sources", ()) if "secret" in source]
        there |= {f"{mounts[volume['name']]}/{item['path']}" for source in sources for item in source["items"]}

    named = {line.split(": ")[1] for line in text.splitlines() if "ile: /" in line}

    assert named
    assert named <= there


def test_a_suspended_shard_is_marked_in_the_file_that_its_aggregators_read() -> None:
    for suspended in (True, False):
        objects = shard_objects(("spec.suspend", suspended))
        data = objects[("ConfigMap", "events-0-config")]["data"]
        (mounted,) = (
            item["key"]
            for volume in objects[("StatefulSet", "events-0-dc-a-0")]["spec"]["template"]["spec"]["volumes"]
            for item in volume.get("configMap", {}).get("items", ())
            if f"/etc/blockhouse/config/{item['path']}" == str(parse_config(data["events-0-dc-a-0.yaml"]).suspend_file)
        )
        assert data[mounted] == str(suspended).lower()


def test_a_retired_kafka_cluster_is_not_consumed() -> None:
    data = shard_objects(("spec.kafka.clusters.1.retired", True))[("ConfigMap", "events-0-config")]["data"]

    assert [c.name for c in parse_config(data["events-0-dc-a-0.yaml"]).kafka.clusters] == ["a"]


def test_retained_volumes_survive_the_pipeline_and_others_do_not() -> None:
    key = ("PersistentVolumeClaim", "data-events-0-dc-a-0")
    delete = ("spec.clickhouse.managed.storage.deletionPolicy", "Delete")

    assert "ownerReferences" not in shard_objects()[key]["metadata"]
    # Of the pipeline, not of the shard: a shard's resource that is deleted by hand must not take its volumes along.
    assert shard_objects(delete)[key]["metadata"]["ownerReferences"][0]["kind"] == "BlockAggregator"


def test_everything_else_is_owned_so_that_deletion_needs_no_finalizer() -> None:
    for (kind, _), found in {**pipeline_objects(), **shard_objects()}.items():
        if kind != "PersistentVolumeClaim":
            assert found["metadata"]["ownerReferences"][0]["controller"] is True
        assert "finalizers" not in found["metadata"]


def test_beside_an_existing_clickhouse_there_is_only_an_aggregator() -> None:
    objects = shard_objects(EXISTING)

    assert {kind for kind, _ in objects} == {
        "ConfigMap",
        "Service",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "StatefulSet",
    }
    (aggregator_container,) = objects[("StatefulSet", "events-0-dc-b-0")]["spec"]["template"]["spec"]["containers"]
    assert aggregator_container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    config = parse_config(objects[("ConfigMap", "events-0-config")]["data"]["events-0-dc-b-0.yaml"])
    assert config.clickhouse.host == "chi-x-0-2"


def test_an_unavailable_kafka_does_not_take_clickhouse_out_of_its_service() -> None:
    spec = shard_objects()[("StatefulSet", "events-0-dc-a-0")]["spec"]["template"]["spec"]

    assert [c["name"] for c in spec["containers"] if "readinessProbe" in c] == [names.CLICKHOUSE]


def test_selectors_find_the_pods_and_nothing_of_another_pipeline() -> None:
    objects = shard_objects()
    pod_labels = objects[("StatefulSet", "events-0-dc-a-0")]["spec"]["template"]["metadata"]["labels"]
    verifier = pipeline_objects()[("Deployment", "events-verifier")]["spec"]["template"]["metadata"]["labels"]

    for (kind, name), found in objects.items():
        if kind == "Service" and name in ("events-0", "events-0-dc-a-0"):
            assert found["spec"]["selector"].items() <= pod_labels.items()
            assert not found["spec"]["selector"].items() <= verifier.items()
    assert pod_labels[labels.PIPELINE] == "events"


def test_replication_is_open_to_peers_only_unless_they_come_from_another_kubernetes() -> None:
    def sources(*changes: tuple[str, Any]) -> Any:
        rules = shard_objects(*changes)[("NetworkPolicy", "events-0")]["spec"]["ingress"]
        return next(rule.get("from") for rule in rules if rule["ports"][0]["port"] == names.INTERSERVER_PORT)

    assert sources() == [{"podSelector": {"matchLabels": {labels.PIPELINE: "events"}}}]
    assert sources(("spec.zones.1.hostTemplate", "{replica}.b.example.net")) is None


def test_the_pod_lives_long_enough_for_the_drain_and_then_for_clickhouse() -> None:
    spec = shard_objects(("spec.aggregator.shutdownBudget", "2m"))[("StatefulSet", "events-0-dc-a-0")]["spec"]
    template = spec["template"]["spec"]
    script = template["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]

    assert template["terminationGracePeriodSeconds"] > 120 + 30
    assert "-lt 130 " in script


def test_the_own_secrets_carry_what_they_are_given() -> None:
    passwords, internal, read = own_secrets(pipeline(), Credentials("t", ("p", "")), both=False)

    assert passwords["data"] == {"password": "cA=="}
    assert internal["metadata"]["name"] == names.internal_secret("events")
    assert internal["data"]["token"] == "dA=="
    assert list(read["data"]) == ["token"]
    assert {each["metadata"]["ownerReferences"][0]["name"] for each in (passwords, internal, read)} == {"events"}


def test_no_pod_needs_the_secrets_of_the_token_that_only_reads_and_of_the_passwords() -> None:
    """So an operator that brings them along restarts nothing."""
    for objects in (shard_objects(), pipeline_objects()):
        for spec in pod_specs(objects):
            assert names.internal_secret("events") in str(spec)
            assert names.read_secret("events") not in str(spec)
            assert names.password_secret("events") not in str(spec)


def test_the_verifier_watches_every_group_of_every_cluster() -> None:
    text = pipeline_objects()[("ConfigMap", "events-verifier")]["data"]["verifier.yaml"]

    config = yaml.safe_load(text)

    assert config["groups"] == ["events-0", "events-1"]
    assert [cluster["name"] for cluster in config["clusters"]] == ["a", "b"]
