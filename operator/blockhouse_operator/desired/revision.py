"""Which pods are out of date: a hash of the spec inputs that a pod is made from, never of the manifests themselves.

So a new version of the operator, whose manifests may differ, restarts nothing; its manifests reach a pod when it is
restarted for another reason. What equals its default is left out, so a field that a later version adds changes no hash.
Therefore a default, once released, is never changed within an API version.
"""

from __future__ import annotations

import hashlib
import json

from blockhouse_operator.api.shard import ClickHouseShardIngestSpec, Replica
from blockhouse_operator.desired.manifest import content_of

_POD = ("pipeline", "shard", "quorum", "kafka", "clickhouse", "zookeeper", "blocks", "aggregator", "security")
"""Inputs of pods. Not among them: DDL (tables change without a restart), other replicas (`remote_servers` is read
again), rollout, suspend, pull secrets, the network policy."""
_NOT_IN_PODS = {
    "kafka": {"topic": {"partitions", "replicationFactor", "placement", "deletionPolicy", "config"}},
    "clickhouse": {"managed": {"storage"}},
}
"""Parts of those inputs that the operator itself carries out, in Kafka or on volume claims."""


def revision(spec: ClickHouseShardIngestSpec, replica: Replica) -> str:
    """The revision of a replica's pod: 12 hexadecimal digits."""
    content = content_of(spec)
    inputs = {name: content[name] for name in _POD if name in content}
    for section, parts in _NOT_IN_PODS.items():
        inputs[section] = _without(inputs.get(section, {}), parts)
    zone = content_of(spec.zone(replica.zone))
    inputs["zone"] = {name: zone[name] for name in ("nodeSelector", "tolerations") if name in zone}
    inputs["replica"] = content_of(replica)
    inputs["tableLimits"] = {table.name: content_of(table.blocks) for table in spec.tables if table.blocks}
    return digest(inputs)


def digest(inputs: object) -> str:
    """12 hexadecimal digits that are the same for the same JSON value, whatever the order of its keys."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without(content: dict[str, object], parts: dict[str, set[str]]) -> dict[str, object]:
    result = dict(content)
    for name, fields in parts.items():
        inner = result.get(name)
        if isinstance(inner, dict):
            result[name] = {key: value for key, value in inner.items() if key not in fields}
    return result
