"""Whether the port at which replicas fetch parts can be reached from elsewhere without a password. Pure."""

from __future__ import annotations

from blockhouse_operator.api.pipeline import BlockAggregatorSpec
from blockhouse_operator.desired.exposure import interserver_port


def open_replication_port(spec: BlockAggregatorSpec) -> str:
    """A sentence for people: what exposes it, and what protects it; empty when it is protected or not exposed.

    It is no refusal: a pipeline that exists could not change its spec any more, for servers with and without the
    password refuse each other."""
    managed = spec.clickhouse.managed
    if managed is None or managed.interserver_secret_ref is not None:
        return ""
    exposing = [f"hostTemplate of zone {zone.name}" for zone in spec.zones if zone.host_template is not None][:1]
    if spec.template.replica_service.type != "ClusterIP":
        exposing.append(f"template.replicaService.type {spec.template.replica_service.type}")
    if not exposing:
        return ""
    return (
        f"port {interserver_port(managed)[1]} of replicas is open to other networks ({', '.join(exposing)}) and has no"
        " password: who reaches it can fetch parts, which are rows; a new pipeline protects it by"
        " clickhouse.managed.interserverSecretRef, this one by a firewall"
    )
