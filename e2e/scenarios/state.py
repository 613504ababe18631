"""What an operator has made of a resource, in a form in which two runs can be compared."""

from __future__ import annotations

import json
from typing import Any

from blockhouse_operator.api.labels import SPEC_HASH
from blockhouse_operator.api.resource import parse_block_aggregator, parse_shard_ingest
from blockhouse_operator.desired import spec_hash, verifier
from e2e.cluster import Access

KINDS = (
    "clickhouseshardingests,statefulsets,deployments,services,configmaps,secrets,persistentvolumeclaims,"
    "serviceaccounts,poddisruptionbudgets,networkpolicies"
)
LABEL = "ingest.blockhouse.dev/pipeline"

_METADATA = ("name", "labels", "annotations", "ownerReferences")
_VOLATILE_ANNOTATIONS = ("kubectl.kubernetes.io/", "pv.kubernetes.io/", "volume.", "deployment.kubernetes.io/")
_ASSIGNED = {"clusterIP", "clusterIPs", "volumeName", "uid", "internalTrafficPolicy"}


def children(cluster: Access, pipeline: str, namespace: str) -> list[dict[str, Any]]:
    """Everything that carries the pipeline's label, and its pods."""
    selector = f"{LABEL}={pipeline}"
    found: list[dict[str, Any]] = cluster.get(KINDS, "-n", namespace, "-l", selector)["items"]
    return found


def pods(cluster: Access, pipeline: str, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.get("pods", "-n", namespace, "-l", f"{LABEL}={pipeline}")["items"]
    return found


def variables(pod: dict[str, Any]) -> set[str]:
    """Names of the variables of a pod, or of a pod's template."""
    return {variable["name"] for container in pod["spec"]["containers"] for variable in container.get("env", ())}


def templates(cluster: Access, pipeline: str, namespace: str) -> list[set[str]]:
    """Names of the variables that the next pod of each replica has."""
    found = cluster.get("statefulsets", "-n", namespace, "-l", f"{LABEL}={pipeline}")["items"]
    return [variables(stateful_set["spec"]["template"]) for stateful_set in found]


def essence(cluster: Access, pipeline: str, namespace: str) -> dict[str, Any]:
    """Children by kind and name, without what Kubernetes assigns or counts, and without secret texts.

    The pipeline's and the namespace's names are replaced, so that two pipelines of the same spec have the same. So are
    the revisions of the present spec, hashes in which the names are; another revision stays as it is.
    """
    result = {}
    found = children(cluster, pipeline, namespace)
    revisions = _revisions(cluster.get("ba", pipeline, "-n", namespace), found)
    for child in found:
        metadata = {key: value for key, value in child["metadata"].items() if key in _METADATA}
        metadata["annotations"] = {
            key: value
            for key, value in metadata.get("annotations", {}).items()
            if not key.startswith(_VOLATILE_ANNOTATIONS)
        }
        content = {key: value for key, value in child.items() if key in ("spec", "data", "type")}
        if child["kind"] == "Secret":
            content["data"] = sorted(child.get("data", {}))
        text = json.dumps(_without(metadata | content, _ASSIGNED), sort_keys=True)
        text = text.replace(namespace, "NAMESPACE").replace(pipeline, "PIPELINE")
        for present in revisions:
            text = text.replace(f'"{SPEC_HASH}": "{present}"', f'"{SPEC_HASH}": "PRESENT"')
        name = child["metadata"]["name"].replace(pipeline, "PIPELINE")
        result[f"{child['kind']}/{name}"] = json.loads(text)
    return result


def _revisions(pipeline: dict[str, Any], found: list[dict[str, Any]]) -> set[str]:
    """What pods are marked with that were created from the present spec."""
    shards = [parse_shard_ingest(child).spec for child in found if child["kind"] == "ClickHouseShardIngest"]
    replicas = {spec_hash.spec_hash(spec, replica) for spec in shards for replica in spec.replicas}
    return replicas | {verifier.spec_hash(parse_block_aggregator(pipeline))}


def _without(value: Any, keys: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner, keys) for key, inner in value.items() if key not in keys}
    if isinstance(value, list):
        return [_without(inner, keys) for inner in value]
    return value
