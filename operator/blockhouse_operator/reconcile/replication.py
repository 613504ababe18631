"""Observe how far each replica of a shard is, from ZooKeeper and, as far as they answer, from the servers themselves.

ZooKeeper decides; the servers add paths of tables that the spec does not have, and bytes for the message. It is asked
only when a replica is to leave or to be rebuilt: it reads a few nodes per table, replica and queue entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.clickhouse_http import Login, TableOnServer
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import names
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.decide.paths import replication_paths
from blockhouse_operator.decide.references import references
from blockhouse_operator.decide.replication import ReplicationSeen
from blockhouse_operator.desired.clickhouse import CLUSTER_USER
from blockhouse_operator.reconcile.credentials import cluster_logins
from blockhouse_operator.reconcile.observe import ensemble_of
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)


async def observe_replication(
    services: Services, shard: ClickHouseShardIngest, contents: Contents, leaving: str
) -> ReplicationSeen:
    """Every replicated table of the shard. `leaving` is the replica whose data is to be elsewhere; without one only
    ZooKeeper is asked. Raises Retryable while that does not answer."""
    login = await login_of(shard, contents)
    servers = await _servers(services, shard, login, leaving) if leaving else {}
    declared = replication_paths(shard.spec, contents.declaration)
    by_path = {table.path: table.name for tables in servers.values() for table in tables}
    by_path |= {path: name for name, path in declared.items() if path}
    known = set(by_path.values())
    ensemble = ensemble_of(services, shard, contents)
    tables = await asyncio.to_thread(ensemble.replicas_of_tables, sorted(by_path), leaving)
    sizes, local = await _sizes(services, shard, login, leaving, servers.get(leaving))
    return ReplicationSeen(
        tables=tables,
        unknown=tuple(sorted(name for name in declared if name not in known)),
        absent=tuple(sorted(name for name, path in declared.items() if path and path not in tables)),
        names=by_path,
        sizes={path: sizes[name] for path, name in by_path.items() if name in sizes},
        local=local,
    )


async def login_of(shard: ClickHouseShardIngest, contents: Contents) -> Login:
    """The user with which replicas query each other."""
    managed = shard.spec.clickhouse.managed
    authorities = managed.tls.ca_secret_ref if managed is not None and managed.tls is not None else None
    trusted = contents.authorities(authorities)
    if managed is not None and (given := managed.cluster_secret_ref) is not None:
        await contents.read(references(given))
        return Login(CLUSTER_USER, contents.text(given.name, given.key) or "", trusted)
    logins = await cluster_logins(contents, shard.spec.pipeline)
    return Login(*next(iter(logins.items()), (CLUSTER_USER, "")), trusted)


def server_of(services: Services, shard: ClickHouseShardIngest, replica: str) -> str:
    """The HTTP interface of a replica's server; of one that left the spec by its Service."""
    found = next((one.host for one in shard.spec.replicas if one.name == replica), None)
    host = found or names.replica_host(None, replica, shard.namespace)
    return services.endpoints.clickhouse(replica, shard.namespace, host, secure=shard.spec.clickhouse.secure)


async def _servers(
    services: Services, shard: ClickHouseShardIngest, login: Login, leaving: str
) -> Mapping[str, Sequence[TableOnServer]]:
    """Replicated tables by replica, of the servers that answer."""
    replicas = dict.fromkeys([*(replica.name for replica in shard.spec.replicas), leaving])

    async def ask(replica: str) -> tuple[str, Sequence[TableOnServer] | None]:
        base = server_of(services, shard, replica)
        try:
            return replica, await services.clickhouse.replicated_tables(base, login)
        except (Retryable, Permanent) as error:
            log.debug("server_not_asked", replica=replica, error=str(error))
            return replica, None

    answers = await asyncio.gather(*map(ask, replicas))
    return {replica: tables for replica, tables in answers if tables is not None}


async def _sizes(
    services: Services,
    shard: ClickHouseShardIngest,
    login: Login,
    leaving: str,
    tables: Sequence[TableOnServer] | None,
) -> tuple[Mapping[str, Mapping[str, int]], Mapping[str, int]]:
    """Bytes of the leaving replica's parts by table, and of its tables that are not replicated."""
    if tables is None:
        return {}, {}
    base = server_of(services, shard, leaving)
    try:
        sizes = await services.clickhouse.part_sizes(base, login)
    except (Retryable, Permanent) as error:
        log.debug("server_not_asked", replica=leaving, error=str(error))
        return {}, {}
    replicated = {table.name for table in tables}
    return sizes, {name: sum(parts.values()) for name, parts in sizes.items() if name not in replicated}
