"""Which replicas and clusters an audit compares: all of the shard, and those that answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from blockhouse.config.endpoints import ClickHouse
from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.audit.auditing import AuditImpossible, AuditSpec
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.kafka.reachable import unreachable

CONNECT_SECONDS = 4.0
_PATHS = "SELECT DISTINCT zookeeper_path FROM system.replicas WHERE database != 'system'"
_CHILDREN = "SELECT name FROM system.zookeeper WHERE path = %(path)s"
_HOST = "SELECT value FROM system.zookeeper WHERE path = %(path)s AND name = 'host'"
"""One path a query: ClickHouse 18.16 takes no other."""


def of_shard(own: ClickHouse) -> tuple[ClickHouse, ...]:
    """Every replica that has registered one of the server's replicated tables in ZooKeeper, by the address it gave
    there; a name is taken for one server in all tables. Only `own` when the server does not answer or has no such
    table. With TLS all have the port of `own`: what is registered is the port without."""
    registered: dict[str, str] = {}
    try:
        with Replica(_hurried(own), timeout=CONNECT_SECONDS) as local:
            for (path,) in local.query(_PATHS):
                for (name,) in local.query(_CHILDREN, {"path": f"{path}/replicas"}):
                    if name not in registered:
                        for (facts,) in local.query(_HOST, {"path": f"{path}/replicas/{name}"}):
                            registered[str(name)] = str(facts)
    except BlockhouseError:
        return (own,)
    places = sorted({_place(own, facts) for facts in registered.values()})
    return tuple(own.model_copy(update={"host": host, "port": port}) for host, port in places) or (own,)


def _place(own: ClickHouse, registered: str) -> tuple[str, int]:
    """Of lines such as `host: ch-1`."""
    facts = dict(line.split(": ", 1) for line in registered.splitlines() if ": " in line)
    return facts.get("host", own.host), own.port if own.tls is not None else int(facts.get("tcp_port", own.port))


def of_reachable(spec: AuditSpec) -> tuple[AuditSpec, Mapping[str, str]]:
    """The audit of what answers, and why the rest does not. Raises AuditImpossible when no cluster, or no replica,
    does."""
    silent = dict(unreachable(spec.clusters))
    clusters = tuple(cluster for cluster in spec.clusters if cluster.name not in silent)
    left_out = {f"Kafka cluster {name}": why for name, why in silent.items()}
    replicas = []
    for replica in spec.replicas:
        try:
            Replica(_hurried(replica), timeout=CONNECT_SECONDS).query("SELECT 1")
            replicas.append(replica)
        except BlockhouseError as error:
            left_out[f"replica {replica.host}:{replica.port}"] = str(error)
    if not clusters or not replicas:
        raise AuditImpossible("the audit could not be done: " + "; ".join(f"{n}: {why}" for n, why in left_out.items()))
    return replace(spec, clusters=clusters, replicas=tuple(replicas), left_out=frozenset(silent)), left_out


def _hurried(replica: ClickHouse) -> ClickHouse:
    seconds = min(replica.connect_timeout_seconds, CONNECT_SECONDS)
    return replica.model_copy(update={"connect_timeout_seconds": seconds})
