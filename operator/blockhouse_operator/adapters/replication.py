"""ClickHouse's own nodes in ZooKeeper: which replicas a table has, how far each is, and how one is taken out.

The functions take a connected client, and their caller (`Ensemble`) translates its errors. They must never write a
node of a replica that is active.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from blockhouse_operator.decide.replication import ReplicaOfTable

FETCHES = ("\nget\n", "\nattach\n")
"""Kinds of queue entries that bring data to a replica; a merge makes a part of those it has."""
LONG_QUEUE = 500
"""A longer queue is not read entry by entry: such a replica is far from having everything."""


def replicas_of_tables(
    client: KazooClient, paths: Iterable[str], first: str = ""
) -> dict[str, dict[str, ReplicaOfTable]]:
    """Every replica of every table at or below `paths`; a path without a table is not in the answer.

    Of each table the replica `first` is read before the others: what it had then, they must have by the time they are
    read, although the table is loaded meanwhile.
    """
    return {
        table: {replica: _replica(client, f"{table}/replicas/{replica}") for replica in _children(client, table, first)}
        for path in paths
        for table in replicated_tables(client, path)
    }


def replicated_tables(client: KazooClient, path: str) -> Iterator[str]:
    """Tables' own nodes at or below a path: those that have `replicas` and `metadata`."""
    try:
        children = client.get_children(path)
    except NoNodeError:
        return
    if "replicas" in children and "metadata" in children:
        yield path
        return
    for child in sorted(children):
        yield from replicated_tables(client, f"{path}/{child}")


def _children(client: KazooClient, table: str, first: str) -> list[str]:
    return sorted(client.get_children(f"{table}/replicas"), key=lambda replica: (replica != first, replica))


def _replica(client: KazooClient, path: str) -> ReplicaOfTable:
    """A node that vanishes while it is read counts as empty: the replica lacks what was there."""
    try:
        pointer = client.get(f"{path}/log_pointer")[0].decode()
    except NoNodeError:
        pointer = ""
    return ReplicaOfTable(
        active=client.exists(f"{path}/is_active") is not None,
        log_pointer=int(pointer or 0),
        fetches=_fetches(client, f"{path}/queue"),
        parts=frozenset(_names(client, f"{path}/parts")),
    )


def _names(client: KazooClient, path: str) -> list[str]:
    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []


def _fetches(client: KazooClient, path: str) -> frozenset[str]:
    """Parts by name; of a long queue its entries by theirs."""
    entries = _names(client, path)
    if len(entries) > LONG_QUEUE:
        return frozenset(entries)
    return frozenset(filter(None, (_fetched(client, f"{path}/{entry}") for entry in entries)))


def _fetched(client: KazooClient, path: str) -> str:
    """The part that a queue entry fetches; empty for an entry that fetches none."""
    try:
        text = client.get(path)[0].decode(errors="replace")
    except NoNodeError:
        return ""
    kind = next((kind for kind in FETCHES if kind in text), None)
    return text.partition(kind)[2].partition("\n")[0] if kind else ""
