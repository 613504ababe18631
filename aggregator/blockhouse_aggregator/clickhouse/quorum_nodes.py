"""A table's quorum as its ZooKeeper nodes record it, and the one transaction that gives a lost part up.

Layouts of 18.16 and of current servers; where they differ both are read:
  <table>/quorum/status, quorum/parallel/<part>         a part that waits, one at a time or several
  <table>/blocks, async_blocks, deduplication_hashes    <hash> with the part's name as content
  <table>/replicas/<replica>/{is_active, host, log_pointer, parts/<part>, queue/<entry>}
  <table>/log/<entry>                                   lines `get` and the part's name

It must never write anything but that transaction, and never decide: `stuck.py` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from blockhouse.errors import Permanent
from blockhouse_aggregator.clickhouse.quorum import HASH_DIRECTORIES
from blockhouse_aggregator.clickhouse.shard_columns import lacking
from blockhouse_aggregator.clickhouse.stuck import PendingPart, QuorumState, ReplicaState
from blockhouse_aggregator.coordination.znodes import Check, Create, Delete, Znode, Znodes

_HASHES = (*HASH_DIRECTORIES, "async_blocks")
_BATCH = 1000
_PART = re.compile(r"^(?P<partition>[^_]+)_(?P<min>\d+)_(?P<max>\d+)_(?P<level>\d+)(?:_(?P<mutation>\d+))?$")


@dataclass(frozen=True, slots=True)
class PartName:
    """`201811_4_9_1_7`: blocks 4 to 9 of partition 201811, merged once, after mutation 7."""

    partition: str
    min_block: int
    max_block: int
    level: int
    mutation: int

    @classmethod
    def parse(cls, name: str) -> PartName | None:
        """None for a name of another form (old tables partitioned by month, patches)."""
        match = _PART.match(name)
        if match is None:
            return None
        low, high, level, mutation = (int(match[g] or 0) for g in ("min", "max", "level", "mutation"))
        return cls(match["partition"], low, high, level, mutation)

    def covers(self, other: PartName) -> bool:
        """Whether its rows include those of `other`; true of the part itself."""
        return (
            self.partition == other.partition
            and self.min_block <= other.min_block
            and other.max_block <= self.max_block
            and self.level >= other.level
            and self.mutation >= other.mutation
        )


def read_quorum(znodes: Znodes, table_path: str) -> QuorumState:
    """The quorum of the table at `table_path`, chroot included. Costs a few requests unless a part waits.

    Raises Permanent(NoSuchTable) when nothing is there, Retryable while the ensemble is unavailable.
    """
    znodes.sync(table_path)
    replicas_node = znodes.get(f"{table_path}/replicas")
    if replicas_node is None:
        raise Permanent(f"zookeeper {table_path}: no replicated table is there", reason="NoSuchTable")
    pending = _pending(znodes, table_path)
    parts = [part.name for part in pending]
    log = _entries(znodes, f"{table_path}/log") if pending else {}
    names = znodes.children(f"{table_path}/replicas")
    lacks = {each.replica: each.columns for each in lacking(znodes, table_path)} if pending else {}
    return QuorumState(
        table_path=table_path,
        replicas_version=replicas_node.version,
        pending=tuple(_with_blocks(znodes, table_path, pending)),
        replicas=tuple(
            replace(_replica(znodes, f"{table_path}/replicas/{name}", parts, log), lacks=lacks.get(name, ()))
            for name in names
        ),
        failed=tuple(znodes.children(f"{table_path}/quorum/failed_parts")),
    )


def abandon(znodes: Znodes, state: QuorumState, part: PendingPart) -> None:
    """What a replica of the server does with a part that no replica has: all of it or nothing.

    Raises VersionConflict when a replica became active or was added since `state` was read, or the part's node changed.
    """
    came_back = [Check(replica.host_path, replica.host_version) for replica in state.replicas]
    znodes.together(
        Check(f"{state.table_path}/replicas", state.replicas_version),
        *came_back,
        Delete(part.path, part.version),
        Create(f"{state.table_path}/quorum/failed_parts/{part.name}", b""),
        *(Delete(path, -1) for path in part.blocks),
    )


def _pending(znodes: Znodes, table_path: str) -> list[PendingPart]:
    parallel = znodes.children(f"{table_path}/quorum/parallel")
    paths = [f"{table_path}/quorum/status", *(f"{table_path}/quorum/parallel/{name}" for name in parallel)]
    nodes = zip(paths, znodes.get_many(paths), strict=True)
    return [parse_entry(path, node) for path, node in nodes if node is not None]


def parse_entry(path: str, node: Znode) -> PendingPart:
    """A quorum node: lines `part_name: P`, `required_number_of_replicas: N`, `replicas:`, then a name a line."""
    lines = node.data.decode(errors="replace").splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        at = lines.index("replicas:")
        name, required = fields["part_name"], int(fields["required_number_of_replicas"])
    except (KeyError, ValueError) as error:
        text = f"zookeeper {path}: not a quorum entry this version knows ({error}): {node.data[:200]!r}"
        raise Permanent(text, reason="UnknownQuorumEntry") from error
    listed = frozenset(line for line in lines[at + 1 :] if line)
    return PendingPart(name, path, node.version, node.created_ms, required, listed)


def _with_blocks(znodes: Znodes, table_path: str, pending: Sequence[PendingPart]) -> list[PendingPart]:
    """The parts with the nodes that hold their hashes. Reads all hashes, and only if a part waits."""
    if not pending:
        return []
    found: dict[str, list[str]] = {part.name: [] for part in pending}
    for directory in _HASHES:
        for path, data in _entries(znodes, f"{table_path}/{directory}").items():
            if data in found:
                found[data].append(f"{table_path}/{directory}/{path}")
    return [
        PendingPart(p.name, p.path, p.version, p.since_ms, p.required, p.listed, tuple(sorted(found[p.name])))
        for p in pending
    ]


def _entries(znodes: Znodes, directory: str) -> Mapping[str, str]:
    """Name and text of every child; those that vanish meanwhile are left out."""
    names = znodes.children(directory)
    entries: dict[str, str] = {}
    for at in range(0, len(names), _BATCH):
        batch = names[at : at + _BATCH]
        nodes = znodes.get_many([f"{directory}/{name}" for name in batch])
        found = zip(batch, nodes, strict=True)
        entries |= {name: node.data.decode(errors="replace") for name, node in found if node is not None}
    return entries


def _replica(znodes: Znodes, path: str, parts: Sequence[str], log: Mapping[str, str]) -> ReplicaState:
    is_active, host, pointer = znodes.get_many([f"{path}/{node}" for node in ("is_active", "host", "log_pointer")])
    if host is None:
        raise Permanent(f"zookeeper {path}: the replica is half removed: drop it", reason="BrokenReplica")
    queue = znodes.children(f"{path}/queue")
    holds = queued = unread = frozenset[str]()
    if parts:
        # The queue before the parts: a part that is fetched in between is seen twice, not missed.
        queued = _named_in(parts, _entries(znodes, f"{path}/queue").values())
        first = int(pointer.data or b"0") if pointer is not None else 0
        unread = _named_in(parts, [text for name, text in log.items() if int(name.rpartition("-")[2]) >= first])
        holds = _held(parts, znodes.children(f"{path}/parts"))
    return ReplicaState(
        name=path.rpartition("/")[2],
        active=is_active is not None,
        host_path=f"{path}/host",
        host_version=host.version,
        address=_address(host),
        holds=holds,
        queued=queued,
        unread=unread,
        queue_length=len(queue),
    )


def _named_in(parts: Sequence[str], entries: Iterable[str]) -> frozenset[str]:
    """Parts named by a line of any entry."""
    lines = {line for text in entries for line in text.splitlines()}
    return frozenset(part for part in parts if part in lines)


def _held(parts: Sequence[str], stored: Sequence[str]) -> frozenset[str]:
    names = [name for name in map(PartName.parse, stored) if name is not None]
    exact = set(stored)
    return frozenset(
        part
        for part in parts
        if part in exact or ((covered := PartName.parse(part)) and any(name.covers(covered) for name in names))
    )


def _address(host: Znode) -> tuple[str, int] | None:
    fields = dict(line.split(": ", 1) for line in host.data.decode(errors="replace").splitlines() if ": " in line)
    try:
        return fields["host"], int(fields["tcp_port"])
    except (KeyError, ValueError):
        return None
