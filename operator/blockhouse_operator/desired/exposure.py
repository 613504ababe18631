"""How a shard is reached, and what protects it: Services, PodDisruptionBudget, NetworkPolicy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blockhouse_operator.api import labels, names
from blockhouse_operator.api.clickhouse import ManagedClickHouse
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec, Replica
from blockhouse_operator.desired.manifest import Manifest, manifest
from blockhouse_operator.desired.template import add_to_service

Port = tuple[str, int]
_ADMIN: Port = ("admin", names.ADMIN_PORT)


def client_ports(managed: ManagedClickHouse) -> list[Port]:
    """Name and number of the ports for clients of a managed ClickHouse."""
    plain = [("native", names.NATIVE_PORT), ("http", names.HTTP_PORT)]
    secure = [("native-tls", names.SECURE_NATIVE_PORT), ("https", names.HTTPS_PORT)]
    if managed.tls is None:
        return plain
    return secure if managed.secure else plain + secure


def server_ports(managed: ManagedClickHouse) -> list[Port]:
    """All of its ports: the last one is for its peers."""
    return [*client_ports(managed), interserver_port(managed)]


def interserver_port(managed: ManagedClickHouse) -> Port:
    """Name and number of the port at which replicas fetch parts from each other."""
    return ("interserver", names.SECURE_INTERSERVER_PORT if managed.secure else names.INTERSERVER_PORT)


def replica_service(shard: ClickHouseShardIngest, replica: Replica) -> Manifest:
    """The address of one replica, the same for as long as it lives, ready or not: its peers and the operator use it."""
    spec = shard.spec
    ports = [*(server_ports(managed) if (managed := spec.clickhouse.managed) else ()), _ADMIN]
    found = service(
        replica.name,
        shard.namespace,
        ports,
        labels=labels.of_replica(spec.pipeline, spec.shard, replica.zone, replica.name),
        selector={labels.REPLICA: replica.name},
        owner=shard.reference(),
    )
    found["spec"]["publishNotReadyAddresses"] = True
    add_to_service(found, spec.template.replica_service, replica=replica.name, namespace=shard.namespace)
    return found


def query_service(shard: ClickHouseShardIngest) -> Manifest:
    """Any ready replica of the shard, for queries."""
    managed = shard.spec.clickhouse.managed
    found = service(
        shard.name,
        shard.namespace,
        client_ports(managed) if managed is not None else [],
        labels=labels.of_shard(shard.spec.pipeline, shard.spec.shard),
        selector=_pods(shard.spec),
        owner=shard.reference(),
    )
    add_to_service(found, shard.spec.template.query_service, shard=str(shard.spec.shard), namespace=shard.namespace)
    return found


def service(
    name: str,
    namespace: str,
    ports: list[Port],
    *,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    owner: Mapping[str, Any],
) -> Manifest:
    """A Service with an address of its own."""
    return manifest(
        "Service",
        name,
        namespace,
        labels=labels,
        owner=owner,
        spec={
            "type": "ClusterIP",
            "selector": dict(selector),
            "ports": [
                {"name": port, "port": number, "targetPort": number, "protocol": "TCP"} for port, number in ports
            ],
        },
    )


def disruption_budget(shard: ClickHouseShardIngest) -> Manifest:
    """At most one replica of a shard may be evicted at a time."""
    return manifest(
        "PodDisruptionBudget",
        shard.name,
        shard.namespace,
        api_version="policy/v1",
        labels=labels.of_shard(shard.spec.pipeline, shard.spec.shard),
        owner=shard.reference(),
        spec={
            "maxUnavailable": 1,
            # A pod that never becomes ready must not keep a node from being emptied.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": _pods(shard.spec)},
        },
    )


def network_policy(shard: ClickHouseShardIngest) -> Manifest:
    """Queries from anywhere (users have passwords), replication from peers, the admin API from pods (it has a token),
    and ports of sidecars from pods.

    Peers in another Kubernetes cluster come with addresses that are not known here: replication is open to all then.
    """
    spec = shard.spec
    sidecars = [port for sidecar in spec.template.pod.sidecars for port in sidecar.ports]
    of_sidecars = [{"protocol": port.protocol, "port": port.container_port} for port in sidecars]
    rules: list[dict[str, Any]] = [{"from": [{"namespaceSelector": {}}], "ports": [_port(_ADMIN), *of_sidecars]}]
    if managed := spec.clickhouse.managed:
        rules.append({"ports": [_port(port) for port in client_ports(managed)]})
        peers = {"podSelector": {"matchLabels": {labels.PIPELINE: spec.pipeline}}}
        elsewhere = any(zone.host_template for zone in spec.zones)
        rules.append({**({} if elsewhere else {"from": [peers]}), "ports": [_port(interserver_port(managed))]})
    return manifest(
        "NetworkPolicy",
        shard.name,
        shard.namespace,
        api_version="networking.k8s.io/v1",
        labels=labels.of_shard(spec.pipeline, spec.shard),
        owner=shard.reference(),
        spec={"podSelector": {"matchLabels": _pods(spec)}, "policyTypes": ["Ingress"], "ingress": rules},
    )


def _pods(spec: ClickHouseShardIngestSpec) -> dict[str, str]:
    return {labels.PIPELINE: spec.pipeline, labels.SHARD: str(spec.shard), labels.COMPONENT: "replica"}


def _port(port: Port) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port[1]}
