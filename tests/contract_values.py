"""Values of the HTTP contract for unit tests: everything in order, except what a test gives."""

from __future__ import annotations

from typing import Any

from blockhouse.contract.aggregator import (
    BlockInFlight,
    LaggingTable,
    Phase,
    StatusPage,
    StreamCounters,
    StreamStatus,
    TableStatus,
)
from blockhouse.contract.verifier import AnomalyReport, Coverage, Verdict

NONE_DONE = StreamCounters(blocks=0, rows=0, replays=0, deduplicated=0, by_provenance=0, dead=0, rounds=0)


def page(*streams: StreamStatus, tables: tuple[TableStatus, ...] = (), **changes: Any) -> StatusPage:
    """The status page of a started aggregator."""
    fields: dict[str, Any] = {"pipeline": "p", "shard": "0", "replica": "r1", "ready": True, "clusters": {"a": "ok"}}
    return StatusPage(**(fields | changes), streams=streams, tables=tables)


def stream(name: str = "a/t/0", state: Phase = Phase.CONSUME, **changes: Any) -> StreamStatus:
    """A stream that is read to its end, offset 30."""
    fields: dict[str, Any] = {"epoch": 1, "counters": NONE_DONE, "alarms": ()}
    if state in (Phase.REPLAY, Phase.CONSUME):
        fields |= {"position": 30, "log_end": 30, "lag": 0, "seq": 1, "in_flight": (), "lagging": ()}
    return StreamStatus(stream=name, state=state, **(fields | changes))


def block(begin: int = 12, table: str = "d.t", **changes: Any) -> BlockInFlight:
    """A block of eight messages that is being inserted."""
    fields: dict[str, Any] = {"end": begin + 7, "messages": 8, "stage": "inserting", "reason": ""}
    return BlockInFlight(table=table, begin=begin, **(fields | changes))


def lagging(cursor: int = 7, table: str = "d.u", pending: int = 2) -> LaggingTable:
    """A table behind the position."""
    return LaggingTable(table=table, cursor=cursor, pending=pending)


def table(name: str = "d.t", **changes: Any) -> TableStatus:
    """A table that is loaded."""
    fields: dict[str, Any] = {"id": 1, "revision": 1, "held": "", "why": "", "rollout": "", "hazards": ()}
    return TableStatus(name=name, **(fields | changes))


def coverage(commits: int = 20, unseen: int = 0, **changes: Any) -> Coverage:
    """Of a cluster that is watched and read to its end."""
    none = ("missing_records", "tombstones", "damaged", "unknown_versions", "other_topics", "breaks")
    fields: dict[str, Any] = {"state": "watching", "problem": "", "caught_up": True, "behind": 0, "remembered": None}
    fields |= {"looked": None, "partitions": 1, "streams": 2, "earliest": None, "latest": None}
    return Coverage(commits=commits, unseen=unseen, **(dict.fromkeys(none, 0) | fields | changes))


def verdict(**changes: Any) -> Verdict:
    """Clean, about four streams in two clusters."""
    fields: dict[str, Any] = {"pipeline": "p", "verdict": "clean", "anomalies": 0, "streams": 4, "since": None}
    fields |= {"at": "2026-01-01T00:00:00.000Z", "coverage": {"a": coverage(), "b": coverage()}, "latest": None}
    return Verdict(**(fields | changes))


def anomaly(kind: str = "gap", **changes: Any) -> AnomalyReport:
    """Something wrong with stream a/t/0."""
    fields: dict[str, Any] = {"id": kind, "message": "lost", "stream": "a/t/0", "cluster": "a", "group": "g"}
    fields |= dict.fromkeys(("table", "first", "last", "ended")) | {"before": "", "after": "", "at": "", "found": ""}
    return AnomalyReport(kind=kind, **(fields | {"log_partition": 0, "log_offset": 0} | changes))
