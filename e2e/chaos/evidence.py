"""What the servers of a failed run knew, kept beside its logs before the servers are removed.

A row that is missing on one replica is understood from that replica's parts, queue and log, and from what all of them
had agreed on in ZooKeeper, none of which outlives the run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clickhouse_driver import Client
from clickhouse_driver.errors import Error
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from e2e.chaos.verdict import Audited
from e2e.stack import Stack
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.tables import zookeeper_path

SYSTEM_TABLES = ("parts", "replication_queue", "replicas", "merges", "part_log")
LEFT_OUT = frozenset(
    {"blocks", "async_blocks", "deduplication_hashes", "columns", "metadata", "leader_election", "temp"}
)
"""Nodes of a table's tree that are large and have no information about parts."""
UNKNOWN = (Error, KazooException, KazooTimeoutError, OSError)


def keep(stack: Stack, audits: Sequence[Audited], client: KazooClient, folder: Path) -> None:
    """Write the audits, each ClickHouse server's log and system tables, and the tables' trees in ZooKeeper to `folder`.

    What a server does not answer is written as the error it gave: evidence must not end the run.
    """
    folder.mkdir()
    _write(folder / "audit.json", [{"shard": each.shard, **each.report.to_json()} for each in audits])
    for server in stack.clickhouse.values():
        for log in server.folder.glob("*.log"):
            shutil.copy(log, folder / f"{server.name}.{log.name}")
        _write(folder / f"{server.name}.json", {name: _rows(server, name) for name in SYSTEM_TABLES})
    for audited in audits:
        for table in sorted({result.table for result in audited.report.tables if not result.exact}):
            path = zookeeper_path(f"{audited.shard:02d}", table.rpartition(".")[2])
            _write(folder / f"zookeeper-{audited.shard:02d}-{table}.json", _tree(client, path))


def _rows(server: ClickHouseServer, table: str) -> list[dict[str, Any]] | str:
    try:
        with Client(server.host, server.port) as client:
            if table == "part_log":
                client.execute("SYSTEM FLUSH LOGS")
            rows, columns = client.execute(f"SELECT * FROM system.{table}", with_column_types=True)
    except UNKNOWN as error:
        return str(error)
    names = [name for name, _ in columns]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _tree(client: KazooClient, path: str) -> dict[str, str] | str:
    try:
        return dict(_nodes(client, path))
    except UNKNOWN as error:
        return f"{type(error).__name__} {error}"


def _nodes(client: KazooClient, path: str) -> Iterator[tuple[str, str]]:
    try:
        content, _ = client.get(path)
        children = client.get_children(path)
    except NoNodeError:  # it went while the tree was read
        return
    yield path, content.decode(errors="replace")
    for child in sorted(children):
        if child not in LEFT_OUT:
            yield from _nodes(client, f"{path}/{child}")


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, default=str) + "\n")
