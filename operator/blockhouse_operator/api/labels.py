"""Labels and annotations of all that the operator creates: how children are found again, which spec a pod has."""

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
REASSIGNMENT = f"{GROUP}/reassignment"
MIRROR = f"{GROUP}/mirror"
KAFKA_CLUSTER = f"{GROUP}/kafka-cluster"
"""Label of records about a Kafka cluster: a hash of its id."""
COMPONENT = "app.kubernetes.io/component"

SPEC_HASH = f"{GROUP}/revision"
"""Annotation of a StatefulSet's pod template, hence of its pod: hash of the spec inputs (`desired.spec_hash`)."""
ACCEPT_DATA_LOSS = "blockhouse.dev/accept-data-loss"
"""Annotation of a ClickHouseShardIngest: the name of a replica that may leave although its data is not elsewhere."""
REBUILD_REPLICA = "blockhouse.dev/rebuild-replica"
"""Annotation of a ClickHouseShardIngest: the name of a replica that is to be cloned from others on an empty volume."""
RESTART = "blockhouse.dev/restart"
"""Annotation of a BlockAggregator or a ClickHouseShardIngest: another value than the last one restarts all its
replicas, one of a shard at a time. Of a pod: restarts that one, whatever the value."""
ROTATE_CREDENTIALS = "blockhouse.dev/rotate-credentials"
"""Annotation of a BlockAggregator: another value than the last one replaces token and password, by overlap."""
ROTATION = f"{GROUP}/rotation"
"""Annotation of the pipeline's own Secret: the last demand to rotate that was followed, and where that is."""
FILES = f"{GROUP}/user-files"
"""Annotation of the Secret of configuration files: names of the files of users, in their order."""
REBALANCE = "blockhouse.dev/rebalance"
"""Annotation of a KafkaMirror: makes its tasks even once, whatever the value; it is removed then."""
SECRETS = f"{GROUP}/secrets"
"""Annotation of a mirror's pod: changes with the content of the Secrets that it mounts."""
UNREGISTERED = f"{GROUP}/unregistered"
"""Annotation of a retained volume claim: its replica was taken out of ZooKeeper since."""
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


def of_reassignment(name: str) -> dict[str, str]:
    """Labels of the record of a KafkaReassignment, which outlives it."""
    return {**CHILD, COMPONENT: "reassignment", REASSIGNMENT: name}


def of_mirror(name: str) -> dict[str, str]:
    """Labels of a child of a KafkaMirror."""
    return {**CHILD, "app.kubernetes.io/instance": name, COMPONENT: "mirror", MIRROR: name}


def selector(labels: Mapping[str, str]) -> str:
    """A label selector for lists."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
