"""What a Kafka cluster denies its user, in words: who was refused what, on which object, and what to do about it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from blockhouse.config.endpoints import KafkaCluster

CLIENT_ID = "blockhouse-topics"
QUOTA_EXCEEDED, NO_ANSWER = "QuotaExceeded", "KafkaUnreachable"
REQUESTS, MUTATIONS = "request_percentage", "controller_mutation_rate"
"""Quotas that delay or refuse requests like ours."""
_MUTATING = frozenset({"create_topics", "create_partitions", "delete_topics"})

_RIGHTS: Mapping[str, str] = {
    "alter_partition_reassignments": "Alter --cluster",
    "create_partitions": "Alter --topic",
    "create_topics": "Create --topic",
    "delete_topics": "Delete --topic",
    "describe_cluster": "Describe --cluster",
    "describe_log_dirs": "Describe --cluster",
    "describe_topics": "Describe --topic",
    "elect_leaders": "Alter --cluster",
    "list_partition_reassignments": "Describe --cluster",
}
"""What each request needs, as kafka-acls spells it."""


def who(cluster: KafkaCluster) -> str:
    """The client as the brokers know it."""
    return f"user {cluster.sasl.username}" if cluster.sasl else f"client {CLIENT_ID}"


def right_of(request: str, topics: Collection[str] = ()) -> str:
    """What a request needs, as options of kafka-acls; empty where that is not known."""
    needed = _RIGHTS.get(request, "")
    return " ".join((needed, *sorted(topics)[:3])) if needed.endswith("--topic") else needed


def forbidden(cluster: KafkaCluster, right: str) -> str:
    """What follows the words of a broker that does not authorize a request."""
    principal = cluster.sasl.username if cluster.sasl else "NAME"
    if not right:
        return f"; {who(cluster)} lacks a right: see the brokers' authorizer log"
    return (
        f"; {who(cluster)} lacks a right: "
        f"kafka-acls --add --allow-principal User:{principal} --operation {right} grants it"
    )


def over_quota(cluster: KafkaCluster, request: str) -> str:
    """A cluster that makes its client wait, or refuses it for now."""
    quota = MUTATIONS if request in _MUTATING else REQUESTS
    entity = f"users --entity-name {cluster.sasl.username}" if cluster.sasl else f"clients --entity-name {CLIENT_ID}"
    return (
        f"Kafka cluster {cluster.name} at {cluster.bootstrap_servers} holds {request} back: {who(cluster)} has "
        f"exceeded its quota {quota}; it is tried again by itself, and a higher quota ends this: "
        f"kafka-configs --alter --entity-type {entity} --add-config {quota}=..."
    )
