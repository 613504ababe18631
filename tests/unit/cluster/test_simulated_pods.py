"""A simulated container reads what the operator's manifests give it, by the models of the real program."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse_operator.desired import settings
from blockhouse_operator.desired.mirror import children
from e2e.simulator import pods
from tests.unit.operator.mirrors import mirror

CONFIG = """\
pipeline: events
shard: "0"
replica: events-0-dc-a-0
kafka: {topic: events-0, group: events-0, clusters: [{name: a, bootstrapServers: "kafka:9092"}]}
zookeeper: {servers: "zk:2181"}
admin: {host: 0.0.0.0, token: {file: /etc/blockhouse/internal/token}}
"""
CONTENT = {("ConfigMap", "shard"): {"r.yaml": CONFIG}, ("Secret", "internal"): {"token": "t0ken\n"}}


def lookup(kind: str, name: str) -> pods.Content:
    return CONTENT[kind, name]


def pod(**changes: Any) -> dict[str, Any]:
    container = {
        "name": "aggregator",
        "args": ["aggregator", "run", "--config", "/etc/blockhouse/config/aggregator.yaml"],
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/blockhouse/config"},
            {"name": "internal", "mountPath": "/etc/blockhouse/internal"},
        ],
    }
    volumes = [
        {"name": "config", "configMap": {"name": "shard", "items": [{"key": "r.yaml", "path": "aggregator.yaml"}]}},
        {"name": "internal", "projected": {"sources": [{"secret": {"name": "internal"}}]}},
    ]
    return {"metadata": {}, "spec": {"containers": [container | changes], "volumes": volumes}}


def from_secret(name: str, key: str, **options: Any) -> dict[str, Any]:
    return {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": name, "key": key, **options}}}


def test_the_configuration_is_found_where_it_is_mounted() -> None:
    config = pods.configuration(pod(), "aggregator", lookup)
    assert isinstance(config, AggregatorConfig)
    assert config.replica == "events-0-dc-a-0"
    assert pods.token(pod(), "aggregator", config, lookup) == "t0ken"


def test_the_pod_of_a_mirror_finds_its_configuration_too() -> None:
    made = {found["kind"]: found for found in children(mirror(), "s")}

    def of_mirror(kind: str, name: str) -> pods.Content:
        assert name == "east-mirror"
        content: dict[str, str] = made["ConfigMap"]["data"] if kind == "ConfigMap" else {"token": "t0ken"}
        return content

    template = made["Deployment"]["spec"]["template"]
    config = pods.configuration(template, "mirror", of_mirror)

    assert config == settings.mirror(mirror())
    assert pods.token(template, "mirror", config, of_mirror) == "t0ken"


def test_a_file_that_nothing_mounts_is_named() -> None:
    astray = pod(args=["aggregator", "run", "--config", "/etc/blockhouse/config/other.yaml"])
    with pytest.raises(pods.Unusable, match=r"no file /etc/blockhouse/config/other\.yaml"):
        pods.configuration(astray, "aggregator", lookup)


def test_a_container_without_a_configuration_would_not_start() -> None:
    with pytest.raises(pods.Unusable, match="--config"):
        pods.configuration(pod(args=["aggregator", "run"]), "aggregator", lookup)


@pytest.mark.parametrize(
    ("change", "live"),
    [
        ({}, True),
        ({"ready": False}, False),
        ({"name": "clickhouse"}, False),
    ],
)
def test_a_pod_lives_while_its_container_is_ready(change: dict[str, Any], live: bool) -> None:
    found = pod() | {"status": {"containerStatuses": [{"name": "aggregator", "ready": True} | change]}}
    assert pods.is_live(found, "aggregator") is live
    found["metadata"] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert not pods.is_live(found, "aggregator")


@pytest.mark.parametrize(
    ("change", "lacking"),
    [
        ({}, []),
        ({"env": [from_secret("internal", "token")]}, []),
        ({"env": [from_secret("internal", "password")]}, ["key password of Secret internal"]),
        ({"env": [from_secret("internal", "password", optional=True)]}, []),
        ({"env": [from_secret("gone", "token")]}, ["Secret gone"]),
    ],
)
def test_a_pod_could_start_again_while_all_that_it_refers_to_is_there(
    change: dict[str, Any], lacking: list[str]
) -> None:
    assert pods.missing(pod(**change), lookup) == lacking


def test_a_file_that_is_there_no_more_keeps_a_pod_from_starting_again() -> None:
    files: dict[tuple[str, str], pods.Content] = {**CONTENT, ("ConfigMap", "shard"): {"other.yaml": ""}}

    assert pods.missing(pod(), lambda kind, name: files[kind, name]) == ["key r.yaml of ConfigMap shard"]


def test_a_projected_source_that_is_gone_is_named_unless_it_is_optional() -> None:
    def without_secrets(kind: str, name: str) -> pods.Content:
        if kind == "Secret":
            raise KeyError(name)
        return CONTENT[kind, name]

    found = pod()
    assert pods.missing(found, without_secrets) == ["Secret internal"]
    found["spec"]["volumes"][1]["projected"]["sources"][0]["secret"]["optional"] = True
    assert pods.missing(found, without_secrets) == []


def test_a_program_is_known_by_its_image() -> None:
    assert pods.image_of(pod(image="blockhouse/aggregator:0.1.0"), "aggregator") == "blockhouse/aggregator:0.1.0"
    assert pods.image_of(pod(), "aggregator") == ""
