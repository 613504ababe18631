"""ZooKeeper as the operator uses it: what operators of several zones agree on, and replicas that are gone.

Below the pipeline's root, `operator/shards/N/` has the node `restart` (the replica that may be restarted; it is
persistent, so a dead operator's half-done restart still keeps the others from theirs) and `zones/ZONE` (what the
operator of that zone reports about its replicas). Only this module and `replication` import kazoo; its calls block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.errors import Blocked, Retryable
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.replication import replicas_of_tables, replicated_tables
from blockhouse_operator.decide.replication import ReplicaOfTable
from blockhouse_operator.decide.seen import Gap, State, StreamSeen, TableAt, ZoneReport

CONNECT_SECONDS = 5.0
FRESH_SECONDS = 180.0
"""A zone's report counts for so long; it is written again at a third of it."""

Result = TypeVar("Result")


class Ensemble:
    """One ensemble. Thread-safe; connects on first use. Raises Retryable naming the servers when it does not answer."""

    def __init__(self, config: ZooKeeper, fence: Fence) -> None:
        self._servers = config.servers
        self._fence = fence
        acl = CREATOR_ALL_ACL if config.username is not None else None
        self._client = KazooClient(default_acl=acl, **config.client_arguments())
        self._started = False

    def close(self) -> None:
        """End the session; the object is of no use afterwards."""
        self._client.stop()
        self._client.close()

    def claim_restart(self, root: str, shard: int, replica: str) -> str:
        """Try to be the replica of the shard that is restarted; returns who it is."""
        path = f"{_shard_path(root, shard)}/restart"

        def claim(client: KazooClient) -> str:
            try:
                client.create(path, replica.encode(), makepath=True)
            except NodeExistsError:
                return str(client.get(path)[0].decode())
            return replica

        self._fence.check()
        return self._ask(claim)

    def claimed_by(self, root: str, shard: int) -> str:
        """The replica that may be restarted; empty when no one has claimed the restart."""

        def read(client: KazooClient) -> str:
            try:
                return str(client.get(f"{_shard_path(root, shard)}/restart")[0].decode())
            except NoNodeError:
                return ""

        return self._ask(read)

    def release_restart(self, root: str, shard: int, replica: str) -> None:
        """Release the claim, if it is this replica's."""
        path = f"{_shard_path(root, shard)}/restart"

        def release(client: KazooClient) -> None:
            try:
                holder, stat = client.get(path)
                if holder.decode() == replica:
                    client.delete(path, version=stat.version)
            except NoNodeError:
                return

        self._fence.check()
        self._ask(release)

    def report(self, root: str, shard: int, report: ZoneReport) -> None:
        """Report what this zone's replicas do. Written when it changed, or when it would soon count as old."""
        path = f"{_shard_path(root, shard)}/zones/{report.zone}"
        content = json.dumps(asdict(report), sort_keys=True, default=sorted).encode()

        def write(client: KazooClient) -> None:
            client.ensure_path(path)
            known, stat = client.get(path)
            if known != content or _server_now(client, root) - stat.mtime / 1000 > FRESH_SECONDS / 3:
                client.set(path, content)

        self._fence.check()
        self._ask(write)

    def reports(self, root: str, shard: int, zones: Sequence[str]) -> tuple[ZoneReport, ...]:
        """The fresh reports of these zones; old and unreadable ones are left out."""

        def read(client: KazooClient) -> tuple[ZoneReport, ...]:
            now = _server_now(client, root)
            found = (_read_report(client, f"{_shard_path(root, shard)}/zones/{zone}", now) for zone in zones)
            return tuple(report for report in found if report is not None)

        return self._ask(read) if zones else ()

    def quorum_waits(self, root: str, paths: Mapping[str, str]) -> dict[str, float]:
        """Seconds for which a part has waited for its quorum, by name of the table; `paths` are the tables' own nodes.

        A table without such a part, or without a node, is not in the answer. Without any path it is only asked whether
        the ensemble answers.
        """

        def read(client: KazooClient) -> dict[str, float]:
            if not paths:
                client.exists("/")
            # All are sent before the first is waited for: there may be thousands.
            asked = {table: client.exists_async(f"{path}/quorum/status") for table, path in paths.items()}
            stats = {table: each.get() for table, each in asked.items()}
            waiting = {table: stat for table, stat in stats.items() if stat is not None}
            now = _server_now(client, root) if waiting else 0.0
            return {table: max(0.0, now - stat.ctime / 1000) for table, stat in waiting.items()}

        return self._ask(read)

    def replicas_of_tables(self, paths: Sequence[str], first: str = "") -> dict[str, dict[str, ReplicaOfTable]]:
        """Every replica that is registered for the tables at or below `paths`, by the table's path and by replica;
        the replica `first` is read before the others."""
        return self._ask(lambda client: replicas_of_tables(client, paths, first))

    def unregister(self, tables_path: str, replica: str) -> int:
        """Remove a dead replica's registration from every replicated table below `tables_path`; returns how many.

        Raises Blocked, and removes nothing of that table, when the replica is active there: it is still running.
        """

        def remove(client: KazooClient) -> int:
            removed = 0
            for table in replicated_tables(client, tables_path):
                path = f"{table}/replicas/{replica}"
                if client.exists(f"{path}/is_active"):
                    raise Blocked(
                        f"replica {replica} is active in ZooKeeper at {path}; stop its server, it is not in the spec",
                        reason="ReplicaActive",
                    )
                if client.exists(path):
                    self._fence.check()
                    client.delete(path, recursive=True)
                    removed += 1
            return removed

        return self._ask(remove)

    def _ask(self, request: Callable[[KazooClient], Result]) -> Result:
        with _translated(self._servers):
            if not self._started:
                self._client.start(timeout=CONNECT_SECONDS)
                self._started = True
            if not self._client.connected:
                raise KazooTimeoutError
            return request(self._client)


@contextmanager
def _translated(servers: str) -> Iterator[None]:
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise Retryable(
            f"ZooKeeper at {servers} does not answer ({type(error).__name__}); check that it runs and can be reached",
            after=2.0,
        ) from error


def _shard_path(root: str, shard: int) -> str:
    return f"{root}/operator/shards/{shard}"


def _server_now(client: KazooClient, root: str) -> float:
    """The ensemble's own time, so that clocks of different data centres need not agree."""
    path = f"{root}/operator/clock"
    client.ensure_path(path)
    return float(client.set(path, b"").mtime) / 1000


def _read_report(client: KazooClient, path: str, now: float) -> ZoneReport | None:
    try:
        content, stat = client.get(path)
        if now - stat.mtime / 1000 > FRESH_SECONDS:
            return None
        report = json.loads(content)
        return ZoneReport(
            zone=report["zone"],
            states={name: State(state) for name, state in report["states"].items()},
            streams=tuple(map(_stream, report["streams"])),
            tables={name: tuple(map(_table_at, replicas)) for name, replicas in report.get("tables", {}).items()},
        )
    except (NoNodeError, ValueError, KeyError, TypeError):
        return None


def _stream(content: dict[str, Any]) -> StreamSeen:
    return StreamSeen(**{**_known(StreamSeen, content), "in_flight": frozenset(content["in_flight"])})


def _table_at(content: dict[str, Any]) -> TableAt:
    gap = content["gap"]
    known = Gap(gap["exists"], tuple(gap["added"]), tuple(gap["refused"])) if gap else None
    return TableAt(**{**_known(TableAt, content), "gap": known})


def _known(kind: type[StreamSeen | TableAt], content: dict[str, Any]) -> dict[str, Any]:
    """Without what only operators of a later version write."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in content.items() if name in names}
