"""How the life of a pipeline changes its spec: every field that can be changed there, and why the others are not.

`tests/unit/cluster/test_changes.py` holds this against the definition, so a field that is added to the product has to
be added here too. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.scenarios import template_changes
from e2e.scenarios.resources import Manifest, config_map, patched, secret


@dataclass(frozen=True, slots=True)
class Change:
    """Fields of the spec by path (`a__b` is `spec.a.b`). `restarts`: every pod is re-created for it, else none is."""

    what: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    restarts: bool = False


def changes(pipeline: Manifest) -> tuple[Change, ...]:
    """One after the other, of `examples/two-datacenters.yaml` as it is on this machine."""
    spec = pipeline["spec"]
    return (
        Change(
            "the inputs of pods",
            {**_of_pods(spec), **_of_clients(spec), **template_changes.of_pods()},
            restarts=True,
        ),
        Change("what pods are not restarted for", _of_no_pod()),
        Change("what was switched off, again", _back()),
    )


def needed(namespace: str) -> list[Manifest]:
    """What the changed spec refers to."""
    settings = "<yandex><max_concurrent_queries>150</max_concurrent_queries></yandex>"
    return [
        secret("clickhouse-auditor", namespace, word="not so secret"),
        secret("between-replicas", namespace, word="not so secret either"),
        config_map("clickhouse-settings", namespace, {"more.xml": settings, "empty.xml": "<clickhouse/>"}),
        secret("admin-tls", namespace, **dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), "not read here")),
        secret("clickhouse-files", namespace, **{"empty.xml": "<clickhouse/>"}),
    ]


def _of_pods(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Images, resources, nodes."""
    taint = {"key": "dedicated", "value": "ingest", "effect": "NoExecute"}
    toleration = {**taint, "operator": "Equal", "tolerationSeconds": 60}
    return {
        "zones": [
            dict(zone, nodeSelector={"kubernetes.io/os": "linux"}, tolerations=[toleration]) for zone in spec["zones"]
        ],
        "quorum": 3,
        "security": {"runAsUser": 10002, "runAsGroup": 10002, "fsGroup": 10002},
        "aggregator__image": "blockhouse/aggregator:0.1.1",
        "aggregator__resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
        "clickhouse__managed__image": "blockhouse/clickhouse:18.16.2",
        "clickhouse__managed__resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "12Gi"}},
        "clickhouse__managed__settingsFrom": {"name": "clickhouse-settings", "key": "more.xml"},
        "clickhouse__managed__settings": {"max_connections": "512"},
        "clickhouse__managed__configFiles": _files("<max_open_files>4096</max_open_files>"),
        "clickhouse__managed__userFiles": _files("<quotas><of-file><interval/></of-file></quotas>"),
    }


def _files(content: str) -> list[dict[str, Any]]:
    """A file of each source; what they refer to is `needed`."""
    return [
        {"name": "a.xml", "text": f"<clickhouse>{content}</clickhouse>"},
        {"name": "b.xml", "configMapKeyRef": {"name": "clickhouse-settings", "key": "empty.xml"}},
        {"name": "c.xml", "secretKeyRef": {"name": "clickhouse-files", "key": "empty.xml"}},
    ]


def _of_clients(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of the aggregators' configuration."""
    clusters = spec["kafka"]["clusters"]
    ensembles = spec["zookeeper"]["ensembles"]
    limits = {"maxBytes": "4Mi", "maxRows": 20000, "maxAge": "3s"}
    return {
        "blocks": {
            "maxBytes": "8Mi",
            "maxRows": 50000,
            "maxAge": "2s",
            "growToBytes": "32Mi",
            "maxBytesPerRound": "64Mi",
        },
        "tables": [dict(table, blocks=limits) for table in spec["tables"]],
        "kafka__sessionTimeout": "30s",
        "kafka__offsetMetadataMaxBytes": 8192,
        "kafka__heartbeatInterval": "1s",
        "kafka__commitTimeout": "15s",
        "kafka__deadLetterTemplate": "dead-letters-{shard}",
        "kafka__weakOffsetsTopic": "refuse",
        "clickhouse__database": "db",
        "clickhouse__connectTimeout": "6s",
        "zookeeper__sessionTimeout": "12s",
        "kafka__clusters": [dict(c, bootstrapServers=_twice(c["bootstrapServers"]), zone="dc-a") for c in clusters],
        "zookeeper__ensembles": [
            dict(e, name="z1", servers=_twice(e["servers"][0]).split(","), shards={"from": 0, "to": 99})
            for e in ensembles
        ],
        "aggregator__spark": {"master": "local[4]", "conf": {"spark.ui.enabled": "false"}, "lease": "30s"},
        "aggregator__quorumTimeout": "40s",
        "aggregator__windowFlush": "2m",
        "aggregator__unknownTable": "deadLetter",
        "aggregator__maxUnknownTables": 16,
        "aggregator__defaultFormat": "json",
        "aggregator__provenance": "require",
        "aggregator__handoverAfter": "20s",
        "aggregator__shutdownBudget": "30s",
        "aggregator__faults": {"enabled": True},
        "aggregator__logFormat": "console",
        "aggregator__logLevel": "debug",
        "adminTls": {"secretRef": {"name": "admin-tls"}, "caSecretRef": {"name": "admin-tls", "key": "ca.crt"}},
    }


def _twice(server: str) -> str:
    """A server of this machine by both of its names."""
    return f"{server},{server.replace('127.0.0.1', 'localhost')}"


def _of_no_pod() -> dict[str, Any]:
    """What the operator carries out by itself."""
    return {
        "clickhouse__remoteServers": "Shard",
        **_of_users(),
        "clickhouse__managed__clusterSecretRef": {"name": "between-replicas", "key": "word"},
        "clickhouse__managed__storage": {"size": "600Gi", "deletionPolicy": "Delete"},
        "kafka__topic__config": {"retention.ms": "86400000"},
        "kafka__topic__partitions": 6,
        "kafka__topic__placement": "Broker",
        "kafka__topic__deletionPolicy": "Delete",
        "rollout": {
            "maxParallelShards": "50%",
            "windows": [{"days": ["Sun"], "start": "02:30", "duration": "2h", "timeZone": "Europe/Berlin"}],
            "stepTimeout": "10m",
            "strategy": "Reload",
            "onSecretChange": "Restart",
            "paused": True,
            "abort": True,
        },
        "networkPolicy": {"enabled": False},
        "imagePullSecrets": [{"name": "registry"}],
        **template_changes.of_no_pod(),
        "verifier": {"enabled": False},
    }


def _of_users() -> dict[str, Any]:
    """Users of ClickHouse, with a profile and a quota of their own and of several."""
    limits = {
        "interval": "1m",
        "queries": 100,
        "errors": 50,
        "resultRows": 1000000,
        "readRows": 1000000000,
        "executionTime": "30s",
    }
    auditor = {
        "name": "auditor",
        "passwordSecretRef": {"name": "clickhouse-auditor", "key": "word"},
        "readOnly": False,
        "networks": ["10.0.0.0/8"],
        "databases": ["db"],
        "profile": "shared",
        "settings": {"max_memory_usage": "1000000000"},
        "quota": limits,
    }
    reader = {"name": "reader", "passwordSecretRef": auditor["passwordSecretRef"], "quotaName": "shared"}
    return {
        "clickhouse__managed__users": [auditor, reader],
        "clickhouse__managed__profiles": [{"name": "shared", "settings": {"max_threads": "2"}}],
        "clickhouse__managed__quotas": [{"name": "shared", **limits}],
    }


def _of_the_verifier() -> dict[str, Any]:
    """The inputs of the verifier's configuration; its pod is another one than those of replicas."""
    return {
        "tableNames": {"1": "db.clicks"},
        "stalledAfter": "4m",
        "logInterval": "2s",
        "skewWindow": "3s",
        "holeCheck": 500000,
        "lostAfter": "2m",
        "anomalyRetention": "24h",
        "maxAnomalies": 500,
        "checkpoint": {"enabled": True, "topic": "remembered", "interval": "5s", "replicationFactor": 1},
        "logFormat": "console",
        "logLevel": "debug",
    }


def _back() -> dict[str, Any]:
    resources = {"requests": {"memory": "256Mi"}, "limits": {"memory": "512Mi"}}
    return {
        "clickhouse__remoteServers": "Full",
        "clickhouse__managed__storage": {"size": "600Gi", "deletionPolicy": "Retain"},
        "kafka__topic__deletionPolicy": "Retain",
        "rollout": {"maxParallelShards": 2, "stepTimeout": "10m", "onSecretChange": "Restart"},
        "networkPolicy": {"enabled": True},
        "verifier": {"enabled": True, "image": "blockhouse/aggregator:0.1.1", "resources": resources}
        | _of_the_verifier(),
        **template_changes.of_the_verifier(),
        "template__queryService": {"type": "NodePort"},
        "template__replicaService": {},
    }


_BESIDE = "template.pod.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.[]"
OTHERWISE = {
    "shards": "grown and shrunk in the same life",
    "shardRemovalPolicy": "grown and shrunk in the same life",
    "suspend": "suspended in the same life",
    "stop": "stopped in the same life",
    "paused": "test_pause",
    "zones.[].replicas": "grown and shrunk in the same life",
    "zones.[].name": "another name is another zone: new replicas and the end of the old ones",
    "zones.[].hostTemplate": "test_zones",
    "zones.[].firstReplica": "only for an existing ClickHouse: test_existing",
    "clickhouse.existing": "test_existing; a managed ClickHouse cannot become an existing one",
    "tables.[].name": "another name is another table",
    "tables.[].ddl": "test_schema",
    "tables.[].ddlFrom": "the example has one; it is read again at every reconcile, as a ddl is",
    "kafka.topic.replicationFactor": "one broker a cluster here; the placement's own tests move replicas on several",
    "kafka.clusters.[].name": "cannot be changed",
    "kafka.clusters.[].retired": "takes away half of the streams; tests of desired and decide",
    "kafka.clusters.[].tls": "the brokers here have no certificates; tests of desired",
    "kafka.clusters.[].sasl": "the brokers here know no logins; test_life has one that is missing",
    "zookeeper.ensembles.[].auth": "the ZooKeeper here knows no logins; tests of desired",
    "zookeeper.ensembles.[].tls": "the ZooKeeper here has no certificates; tests of desired, test_zookeeper_tls",
    "zookeeper.ensembles.[].shards.from": "shard 0 must stay served",
    "clickhouse.managed.tls": "the pods here are played; tests of desired, test_operator_tls",
    "clickhouse.managed.interserverSecretRef": "can be neither added nor removed; test_definitions",
    "clickhouse.managed.storage.className": "a claim's class cannot be changed",
    "kafka.groupTemplate": "cannot be changed",
    "kafka.topic.nameTemplate": "cannot be changed",
    "clickhouse.cluster": "cannot be changed",
    "zookeeper.root": "cannot be changed",
    "template.pod.volumes.[].persistentVolumeClaim": "no such claim here; tests of desired",
    f"{_BESIDE}.namespaceSelector.matchLabels": "the namespace has no label that is known here",
    "template.pod.volumes.[].csi": "no such driver here; tests of desired",
}
"""Fields (or all below them) that are not changed here, and where or why."""


def changed_paths(pipeline: Manifest) -> frozenset[str]:
    """Paths of all fields that some change gives another value; the items of lists are `[]`."""
    found: set[str] = set()
    for change in changes(pipeline):
        after = patched(pipeline, **change.fields)
        former, present = dict(_leaves(pipeline["spec"])), dict(_leaves(after["spec"]))
        found |= {path for path, value in present.items() if former.get(path) != value}
        pipeline = after
    return frozenset(found)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Paths and values, those of all items of a list together."""
    together: dict[str, list[str]] = {}
    for where, leaf in _each(value, path):
        together.setdefault(where, []).append(repr(leaf))
    yield from ((where, "; ".join(leaves)) for where, leaves in together.items())


def _each(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _each(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for item in value:
            yield from _each(item, f"{path}.[]")
    else:
        yield path, value
