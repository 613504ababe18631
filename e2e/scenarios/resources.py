"""The resources that scenarios apply: those of `examples/`, with addresses and sizes of this machine."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from e2e.cluster.surroundings import Surroundings
from e2e.scenarios.version import OURS, Version

Manifest = dict[str, Any]


def example(name: str = "two-datacenters", kind: str = "BlockAggregator", version: Version = OURS) -> Manifest:
    """The first resource of the kind in an example file."""
    documents: list[Manifest] = list(yaml.safe_load_all((version.examples / f"{name}.yaml").read_text()))
    return next(document for document in documents if document["kind"] == kind)


def at_home(pipeline: Manifest, surroundings: Surroundings, *, name: str = "", namespace: str = "default") -> Manifest:
    """`pipeline` on the Kafka clusters and ZooKeeper of this machine, where no client needs a password.

    With another `name`, also its topics and groups are others.
    """
    result = copy.deepcopy(pipeline)
    former, spec = result["metadata"]["name"], result["spec"]
    result["metadata"] |= {"name": name or former, "namespace": namespace}
    for cluster in spec["kafka"]["clusters"]:
        cluster.pop("tls", None)
        cluster.pop("sasl", None)
        cluster["bootstrapServers"] = surroundings.kafka[cluster["name"]].bootstrap
    topic = spec["kafka"]["topic"]
    topic["replicationFactor"] = surroundings.spec.brokers
    if name:
        topic["nameTemplate"] = topic["nameTemplate"].replace(former, name)
        spec["kafka"]["groupTemplate"] = spec["kafka"]["groupTemplate"].replace(former, name)
    for ensemble in spec["zookeeper"]["ensembles"]:
        ensemble["servers"] = [surroundings.zookeeper.connect]
    return result


def patched(pipeline: Manifest, **changes: Any) -> Manifest:
    """A copy with fields of its spec replaced; `a__b=1` is `spec.a.b`."""
    result = copy.deepcopy(pipeline)
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = result["spec"]
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return result


def secret(name: str, namespace: str, **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": data,
    }


def config_map(name: str, namespace: str, data: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def companions(namespace: str) -> list[Manifest]:
    """What `examples/two-datacenters.yaml` refers to."""
    views = """\
CREATE TABLE db.views (day Date, page String, views UInt64,
  _kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64, _kafka_row UInt32)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/db.views', '{replica}')
PARTITION BY toYYYYMM(day) ORDER BY (page, _kafka_cluster, _kafka_partition, _kafka_offset, _kafka_row)
SETTINGS replicated_deduplication_window = 10000
"""
    return [
        secret("clickhouse-analyst", namespace, password="not so secret"),
        config_map("events-tables", namespace, {"views.sql": views}),
    ]
