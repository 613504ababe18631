"""TLS of ZooKeeper and of a managed ClickHouse: what the files and the pods of a shard have for it."""

from __future__ import annotations

from base64 import b64decode
from typing import Any
from xml.etree import ElementTree

import pytest

from blockhouse.config.load import parse as parse_config
from blockhouse_operator.desired import aggregator as desired
from blockhouse_operator.desired.clickhouse import Passwords
from tests.unit.operator.resources import pipeline
from tests.unit.operator.test_desired_manifests import Objects, pod_specs, shard_objects


def test_every_program_reaches_an_ensemble_over_tls() -> None:
    secure = ("spec.zookeeper.ensembles.0.tls", {"caSecretRef": {"name": "zk-ca"}, "clientSecretRef": {"name": "zk"}})
    objects = shard_objects(secure)
    config = objects["ConfigMap", "events-0-config"]["data"]
    server = ElementTree.fromstring(config["config.xml"])
    assert {node.findtext("secure") for node in server.iterfind("zookeeper/node")} == {"1"}
    client = server.find("openSSL/client")
    assert client is not None
    assert client.findtext("verificationMode") == "strict"
    assert client.findtext("caConfig") == "/etc/blockhouse/zookeeper-login/ca.crt"
    aggregator = parse_config(config["events-0-dc-a-0.yaml"])
    assert aggregator.zookeeper.tls is not None
    assert str(aggregator.zookeeper.tls.cert_file) == "/etc/blockhouse/zookeeper-login/tls.crt"
    for pod in pod_specs(objects):
        mounts = {c["name"]: [m["mountPath"] for m in c["volumeMounts"]] for c in pod["containers"]}
        assert all("/etc/blockhouse/zookeeper-login" in paths for paths in mounts.values())
        (start,) = (c["command"] for c in pod["containers"] if c["name"] == "clickhouse")
        assert start[0] == "clickhouse-server", "no shell can ask a server that speaks TLS"


CERTIFICATE = {"secretRef": {"name": "certificate"}, "caSecretRef": {"name": "ca"}}


def managed(mode: str) -> Objects:
    return shard_objects(("spec.clickhouse.managed.tls", {**CERTIFICATE, "mode": mode}))


def ports_of(service: dict[str, Any]) -> list[int]:
    return [port["port"] for port in service["spec"]["ports"]]


@pytest.mark.parametrize(
    ("mode", "clients", "peers"),
    [("Allowed", [9000, 8123, 9440, 8443], 9009), ("Required", [9440, 8443], 9010)],
)
def test_a_server_with_tls_is_reached_at_its_ports_and_no_others(mode: str, clients: list[int], peers: int) -> None:
    objects = managed(mode)
    server = ElementTree.fromstring(objects["ConfigMap", "events-0-config"]["data"]["config.xml"])
    listened = {int(each.text or 0) for each in server if each.tag.endswith(("_port", "_port_secure"))}
    assert listened == {*clients, peers}
    assert server.findtext("openSSL/server/certificateFile") == "/etc/blockhouse/clickhouse-tls/tls.crt"
    assert ports_of(objects["Service", "events-0"]) == clients
    assert ports_of(objects["Service", "events-0-dc-a-0"]) == [*clients, peers, 8080]
    rules = objects["NetworkPolicy", "events-0"]["spec"]["ingress"]
    assert [port["port"] for rule in rules for port in rule["ports"]] == [8080, *clients, peers]
    for pod in pod_specs(objects):
        (container,) = (each for each in pod["containers"] if each["name"] == "clickhouse")
        assert [port["containerPort"] for port in container["ports"]] == [*clients, peers]
        assert "clickhouse-tls" in {volume["name"] for volume in pod["volumes"]}
        probe = container["readinessProbe"]["httpGet"]
        expected = (8443, "HTTPS") if mode == "Required" else (8123, None)
        assert (probe["port"], probe.get("scheme")) == expected


def test_an_aggregator_has_tls_to_a_server_without_plain_ports_and_replicas_have_it_to_each_other() -> None:
    change = ("spec.clickhouse.managed.tls", {**CERTIFICATE, "mode": "Required"})
    config = parse_config(managed("Required")["ConfigMap", "events-0-config"]["data"]["events-0-dc-a-0.yaml"])
    assert (config.clickhouse.host, config.clickhouse.port) == ("127.0.0.1", 9440)
    assert config.clickhouse.tls is not None
    secret = desired.clickhouse_secret(pipeline(change), Passwords({"cluster": "p"}))
    listed = ElementTree.fromstring(b64decode(secret["data"]["remote_servers.xml"]))
    assert {(each.findtext("port"), each.findtext("secure")) for each in listed.iter("replica")} == {("9440", "1")}


def test_the_servers_authorities_are_those_of_clickhouse_where_both_are_given() -> None:
    secure = ("spec.zookeeper.ensembles.0.tls", {"caSecretRef": {"name": "zk-ca"}, "clientSecretRef": {"name": "zk"}})
    objects = shard_objects(secure, ("spec.clickhouse.managed.tls", CERTIFICATE))
    server = ElementTree.fromstring(objects["ConfigMap", "events-0-config"]["data"]["config.xml"])
    assert server.findtext("openSSL/client/caConfig") == "/etc/blockhouse/clickhouse-tls/ca.crt"
    assert server.findtext("openSSL/client/certificateFile") == "/etc/blockhouse/zookeeper-login/tls.crt"


def test_without_tls_there_is_nothing_of_it() -> None:
    assert "openSSL" not in shard_objects()["ConfigMap", "events-0-config"]["data"]["config.xml"]
