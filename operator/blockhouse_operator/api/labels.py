"""Labels and annotations of all that the operator makes: how children are found again, what a pod was made from."""

from __future__ import annotations

from collections.abc import Mapping

GROUP = "ingest.blockhouse.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
FIELD_MANAGER = "blockhouse-operator"

PIPELINE = f"{GROUP}/pipeline"
SHARD = f"{GROUP}/shard"
REPLICA = f"{GROUP}/replica"
ZONE = f"{GROUP}/zone"
COMPONENT = "app.kubernetes.io/component"

REVISION = f"{GROUP}/revision"
"""Annotation of a StatefulSet's pod template, hence of its pod: hash of the spec inputs (`desired.revision`)."""
CHILD = {"app.kubernetes.io/managed-by": FIELD_MANAGER, "app.kubernetes.io/part-of": "blockhouse"}
"""Labels of every child."""


def of_pipeline(pipeline: str, component: str | None = None) -> dict[str, str]:
    """Labels of a child of a BlockAggregator."""
    labels = {**CHILD, "app.kubernetes.io/instance": pipeline, PIPELINE: pipeline}
    return labels | {COMPONENT: component} if component else labels


def of_shard(pipeline: str, shard: int) -> dict[str, str]:
    """Labels of a child of a ClickHouseShardIngest."""
    return of_pipeline(pipeline) | {SHARD: str(shard)}


def of_replica(pipeline: str, shard: int, zone: str, replica: str) -> dict[str, str]:
    """Labels of a replica's StatefulSet, pod, Service and claim."""
    return of_shard(pipeline, shard) | {COMPONENT: "replica", ZONE: zone, REPLICA: replica}


def selector(labels: Mapping[str, str]) -> str:
    """A label selector for lists."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
