"""Which pods are out of date: a hash of the spec inputs that a pod is created from, never of the manifests themselves.

So a new version of the operator, whose manifests may differ, restarts nothing; its manifests reach a pod when it is
restarted for another reason. What equals its default is left out, so a field that a later version adds changes no hash.
Therefore a default, once released, is never changed within an API version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from blockhouse_operator.api.shard import ClickHouseShardIngestSpec, Replica
from blockhouse_operator.desired.manifest import content_of

_POD = (
    *("pipeline", "shard", "quorum", "kafka", "clickhouse", "zookeeper", "blocks", "aggregator", "security"),
    "adminTls",
)
"""Inputs of pods. Not among them: DDL (tables change without a restart), other replicas (`remote_servers` is read
again), rollout, suspend, pull secrets, the network policy."""
_CONTENTS = ("configFiles", "userFiles", "secretsHash")
"""Inputs of pods that are absent where nothing is given, as in every hash from before there were such: keys of files
that change with their contents, whether there are files of users, and the contents of Secrets."""
_POD_TEMPLATES = ("pod", "clickhouseContainer", "aggregatorContainer")
"""Parts of the template that pods are created from: Services and volume claims change without a restart."""
_TOPIC = {"topic": {"partitions", "replicationFactor", "placement", "deletionPolicy", "config"}}
_NOT_IN_PODS = {
    "kafka": _TOPIC,
    "clickhouse": {
        "managed": {"storage", "users", "profiles", "quotas", "clusterSecretRef"},
        "remoteServers": set(),
    },
}
"""Parts of those inputs that the operator itself carries out: in Kafka, on volume claims, in files that servers read
again."""
_NOT_IN_FORMER_PODS = {"kafka": _TOPIC, "clickhouse": {"managed": {"storage"}, "remoteServers": set()}}
"""The same of pods that have the passwords of users in their environment."""


def spec_hash(spec: ClickHouseShardIngestSpec, replica: Replica) -> str:
    """The hash of the spec that a replica's pod is created from: 12 hexadecimal digits."""
    if spec.clickhouse.managed is None:
        return former_spec_hash(spec, replica)
    # A word that no former hash has: their pods do not mount the Secret of users.
    return digest({**_inputs(spec, replica, _NOT_IN_PODS), "users": "Secret"})


def former_spec_hash(spec: ClickHouseShardIngestSpec, replica: Replica) -> str:
    """The hash as operators made it whose pods have the passwords of users in their environment.

    Such a pod runs the present spec and need not be restarted, until the users change: it could not know a new one.
    """
    return digest(_inputs(spec, replica, _NOT_IN_FORMER_PODS))


def _inputs(
    spec: ClickHouseShardIngestSpec, replica: Replica, left_out: Mapping[str, Mapping[str, set[str]]]
) -> dict[str, object]:
    content = content_of(spec)
    inputs = {name: content[name] for name in (*_POD, *_CONTENTS) if name in content}
    for section, parts in left_out.items():
        inputs[section] = _without(inputs.get(section, {}), parts)
    zone = content_of(spec.zone(replica.zone))
    inputs["zone"] = {name: zone[name] for name in ("nodeSelector", "tolerations") if name in zone}
    inputs["replica"] = content_of(replica)
    # Absent where nothing is given, as in every hash from before there were templates.
    if template := {name: part for name, part in content.get("template", {}).items() if name in _POD_TEMPLATES}:
        inputs["template"] = template
    inputs["tableLimits"] = {table.name: content_of(table.blocks) for table in spec.tables if table.blocks}
    return inputs


def digest(inputs: object) -> str:
    """12 hexadecimal digits that are the same for the same JSON value, whatever the order of its keys."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without(content: dict[str, object], parts: Mapping[str, set[str]]) -> dict[str, object]:
    result = dict(content)
    for name, fields in parts.items():
        inner = result.get(name)
        if isinstance(inner, dict):
            result[name] = {key: value for key, value in inner.items() if key not in fields}
        else:
            result.pop(name, None)
    return result
