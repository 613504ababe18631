"""Which live replicas lack columns that their shard's table has: an ALTER reaches each replica by itself, some late.

A replica that lacks a column cannot fetch a part that was written with it, so a quorum waits for it. Reads two nodes of
ClickHouse's, a line a column, its name in backquotes:

  <table>/columns                what the shard decided, written by the ALTER before any replica applies it
  <table>/replicas/<r>/columns   what replica r has applied
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from blockhouse_aggregator.coordination.znodes import Znode, Znodes

_COLUMN = re.compile(r"^`((?:[^`\\]|\\.)+)` ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Lacking:
    """A live replica, and the columns of its shard that it does not have yet, in the shard's order."""

    replica: str
    columns: tuple[str, ...]


def lacking(znodes: Znodes, table_path: str) -> tuple[Lacking, ...]:
    """Of the table at `table_path`, chroot included. A replica without a session is left out: it applies what the shard
    decided when it comes back, before it fetches. Raises Retryable while the ensemble is unavailable."""
    znodes.sync(table_path)
    replicas = znodes.children(f"{table_path}/replicas")
    nodes = znodes.get_many(
        [
            f"{table_path}/columns",
            *(f"{table_path}/replicas/{name}/is_active" for name in replicas),
            *(f"{table_path}/replicas/{name}/columns" for name in replicas),
        ]
    )
    of_shard, active, applied = nodes[0], nodes[1 : 1 + len(replicas)], nodes[1 + len(replicas) :]
    found = (
        Lacking(name, columns)
        for name, session, own in zip(replicas, active, applied, strict=True)
        if session is not None and (columns := _missing(of_shard, own))
    )
    return tuple(found)


def _missing(of_shard: Znode | None, own: Znode | None) -> tuple[str, ...]:
    if of_shard is None or own is None or of_shard.data == own.data:
        return ()
    there = _names(own)
    return tuple(name for name in _names(of_shard) if name not in there)


def _names(node: Znode) -> list[str]:
    names = _COLUMN.findall(node.data.decode(errors="replace"))
    return [re.sub(r"\\(.)", r"\1", name) for name in names]


def words(lacks: Collection[Lacking]) -> str:
    """`replica r2 lacks columns a, b; replica r3 lacks column a`."""
    return "; ".join(
        f"replica {each.replica} lacks column{'s' if len(each.columns) > 1 else ''} {', '.join(each.columns)}"
        for each in lacks
    )
