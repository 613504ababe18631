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

from clickhouse_driver.errors import Error
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from e2e.chaos.verdict import Audited
from e2e.stack import Stack
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.tables import zookeeper_path

SYSTEM_TABLES = ("parts", "replication_queue", "replicas", "merges", "part_log")
LEFT_OUT = ("/blocks/", "/columns", "/metadata", "/leader_election/", "/temp/")
"""Parts of a table's tree that are large and say nothing of parts."""


def keep(stack: Stack, audits: Sequence[Audited], client: KazooClient, folder: Path) -> None:
    """Write the audits, each ClickHouse server's log and system tables, and the tables' trees in ZooKeeper to `folder`.

    What cannot be had is written as the error that says so: evidence must not end the run.
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
            _write(folder / f"zookeeper-{audited.shard:02d}-{table}.json", dict(_tree(client, path)))


def _rows(server: ClickHouseServer, table: str) -> list[dict[str, Any]] | str:
    try:
        if table == "part_log":
            server.execute("SYSTEM FLUSH LOGS")
        described = server.execute(f"DESCRIBE TABLE system.{table}")
        names = [name for name, _, default, *_ in described if default != "ALIAS"]
        rows = server.execute(f"SELECT {', '.join(names)} FROM system.{table}")
        return [dict(zip(names, row, strict=True)) for row in rows]
    except (Error, OSError) as error:
        return str(error)


def _tree(client: KazooClient, path: str) -> Iterator[tuple[str, str]]:
    try:
        content, _ = client.get(path)
        children = client.get_children(path)
    except NoNodeError:
        return
    yield path, content.decode(errors="replace")
    for child in sorted(children):
        below = f"{path}/{child}"
        if not any(part in f"{below}/" for part in LEFT_OUT):
            yield from _tree(client, below)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, default=str) + "\n")
