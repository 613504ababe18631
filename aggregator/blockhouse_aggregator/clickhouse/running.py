"""Which INSERTs into a table replicas still work on: the process that sent them may have ended; their rows come yet."""

from __future__ import annotations

from blockhouse.config.endpoints import ClickHouse
from blockhouse.errors import Permanent, Retryable
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.names import qualified
from blockhouse_aggregator.clickhouse.quorum_nodes import read_quorum
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.coordination.znodes import Znodes

_SECONDS = 10.0


def check_no_insert_runs(own: ClickHouse, znodes: Znodes, table: ServerTable) -> None:
    """Asks every replica of the table that has a session with ZooKeeper: without one it can store nothing.

    Raises Retryable while an INSERT into the table runs, or a replica that could run one does not answer.
    """
    if table.zookeeper_path is None:
        _check(own, table)
        return
    for state in read_quorum(znodes, table.zookeeper_path).replicas:
        if not state.active:
            continue
        if state.address is None:
            text = f"replica {state.name} of {table.full_name} did not write its address into ZooKeeper"
            raise Permanent(text, reason="UnknownAddress")
        host, port = state.address
        _check(own.model_copy(update={"host": host, "port": port if own.tls is None else own.port}), table)


def _check(config: ClickHouse, table: ServerTable) -> None:
    with Replica(config, timeout=_SECONDS) as replica:
        rows = replica.query(
            "SELECT count() FROM system.processes WHERE position(query, %(insert)s) = 1",
            {"insert": f"INSERT INTO {qualified(table.database, table.name)}"},
        )
    if rows and rows[0][0]:
        raise Retryable(f"{replica.name}: an INSERT into {table.full_name} still runs there", after=0.5)
