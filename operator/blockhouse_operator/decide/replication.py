"""Which replicas have the data of another one, from ZooKeeper's nodes of each replicated table. Pure.

A replica may be removed, or its volume replaced, only when enough others have all of its data. In doubt the answer is
no: it must never be concluded from silence that data exists elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from blockhouse_operator.decide.words import counted, shown_bytes


@dataclass(frozen=True, slots=True)
class ReplicaOfTable:
    """One replica of one replicated table, by its nodes in ZooKeeper.

    Not `active`: its server does not run, or the table is read-only there. `fetches` are the parts that its queue is
    still to bring to it. `parts` are the names of its active parts.
    """

    active: bool = False
    log_pointer: int = 0
    fetches: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplicationSeen:
    """Replicated tables of a shard at one moment: by the table's path in ZooKeeper, then by replica.

    A replica that is not registered for a table is not in the table's mapping. `unknown` are declared tables of which
    no one knows the path, `absent` those that no replica has. `names` are `database.table` by path, as far as a server
    reported them. `sizes` are bytes of active parts by path and part, and `local` bytes of tables that are not
    replicated, of the replica to be removed; empty where it does not answer.
    """

    tables: Mapping[str, Mapping[str, ReplicaOfTable]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    local: Mapping[str, int] = field(default_factory=dict)

    def registered(self, replica: str) -> tuple[str, ...]:
        """Paths of the tables for which a replica is registered."""
        return tuple(sorted(path for path, replicas in self.tables.items() if replica in replicas))


def alive_everywhere(replicas: Sequence[str], seen: ReplicationSeen) -> tuple[str, ...]:
    """Those of `replicas` that are active for every table that there is."""

    def active(replica: str) -> bool:
        return all(replica in table and table[replica].active for table in seen.tables.values())

    return tuple(filter(active, replicas))


@dataclass(frozen=True, slots=True)
class Copies:
    """Who has the data of a replica. `lacking` has for each other replica what it lacks first, in words.

    `bytes_left` are the bytes that fewer than the needed number of replicas have; None where their size is not known.
    """

    complete: tuple[str, ...]
    lacking: Mapping[str, str]
    parts_left: int = 0
    bytes_left: int | None = 0

    @property
    def left(self) -> str:
        """What is still to be copied: `3 parts (12.3 MiB)`; empty when nothing is."""
        if not self.parts_left:
            return ""
        size = f" ({shown_bytes(self.bytes_left)})" if self.bytes_left is not None else " (size unknown)"
        return f"{counted(self.parts_left, 'part', 'parts')}{size}"


def copies(replica: str, others: Sequence[str], needed: int, seen: ReplicationSeen) -> Copies:
    """Which of `others` have every table and all data of `replica`; `needed` of them must, for its data to be safe."""
    lacking: dict[str, str] = {}
    have: dict[tuple[str, str], int] = {}
    for path in seen.registered(replica):
        replicas = seen.tables[path]
        for part in replicas[replica].parts:
            have[path, part] = 0
        for other in others:
            why, missing = _lacks(replicas[replica], replicas.get(other))
            for part in replicas[replica].parts - missing:
                have[path, part] += 1
            if why:
                lacking.setdefault(other, f"{why} {seen.names.get(path, path)}")
    left = [place for place, count in have.items() if count < needed]
    sizes = [seen.sizes.get(path, {}).get(part) for path, part in left]
    known = None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)
    return Copies(tuple(other for other in others if other not in lacking), lacking, len(left), known)


def _lacks(mine: ReplicaOfTable, other: ReplicaOfTable | None) -> tuple[str, frozenset[str]]:
    """What keeps another replica from being a copy, ended by the word before the table's name; parts it has not got."""
    if other is None:
        return "does not have table", mine.parts
    missing = uncovered(mine.parts, other.parts)
    if not other.active:
        return "is not active (down or read-only) for", missing
    # Parts that are newer than what the replica has are no concern of its leaving: a loaded table always fetches some.
    if fetched := other.fetches - uncovered(other.fetches, mine.parts):
        return f"still fetches {counted(len(fetched), 'part', 'parts')} of", missing
    if other.log_pointer < mine.log_pointer:
        return f"is at log entry {other.log_pointer}, not at {mine.log_pointer}, of", missing
    if missing:
        return f"lacks {counted(len(missing), 'part', 'parts')} of", missing
    return "", missing


NEARLY = 10
"""Entries of the log and the queue that a loaded replica may be behind by and has caught up all the same."""


def behind(replica: str, others: Sequence[str], seen: ReplicationSeen) -> str:
    """What a replica that is being cloned still lacks, in words; empty once it has caught up with all others."""
    fetches = 0
    for path, replicas in seen.tables.items():
        present = [replicas[other] for other in others if other in replicas]
        if not present:
            continue
        name, mine = seen.names.get(path, path), replicas.get(replica)
        if mine is None:
            return f"table {name} is not there yet"
        if not mine.active:
            return f"table {name} is not active there yet"
        if len(mine.fetches) + max(other.log_pointer for other in present) - mine.log_pointer > NEARLY:
            fetches += max(len(mine.fetches), 1)
    return f"{counted(fetches, 'part', 'parts')} still to fetch" if fetches else ""


@dataclass(frozen=True, slots=True)
class _Part:
    """`all_0_5_1`: the blocks 0 to 5 of partition `all`."""

    partition: str
    first: int
    last: int


_NEW = re.compile(r"^([^_]+)_(\d+)_(\d+)_\d+(?:_\d+)?$")
_OLD = re.compile(r"^(\d{6})\d\d_\1\d\d_(\d+)_(\d+)_\d+$")
"""Of tables declared by the syntax of old: first and last date, then the blocks."""


def uncovered(parts: frozenset[str], by: frozenset[str]) -> frozenset[str]:
    """Those of `parts` whose rows are not in `by`, neither as the same part nor merged into a larger one.

    A name that cannot be read is covered by the same name only.
    """
    left = parts - by
    if not left:
        return left
    larger: dict[str, list[_Part]] = {}
    for part in filter(None, map(_parsed, by)):
        larger.setdefault(part.partition, []).append(part)
    return frozenset(name for name in left if not _covered(_parsed(name), larger))


def _covered(part: _Part | None, larger: Mapping[str, Iterable[_Part]]) -> bool:
    if part is None:
        return False
    return any(one.first <= part.first and part.last <= one.last for one in larger.get(part.partition, ()))


def _parsed(name: str) -> _Part | None:
    match = _OLD.match(name) or _NEW.match(name)
    return _Part(match[1], int(match[2]), int(match[3])) if match else None
