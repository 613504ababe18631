"""An aggregator's status page: what it does at this moment, with its streams, its tables and its demands to restart.

The operator decides by it. It must never grow with time or load: figures over time are in `/metrics`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field

from blockhouse.contract.base import Answer, Endpoint, absent
from blockhouse.contract.notices import Hazard, StartWait, TableLetters

CLUSTER_OK = "ok"
"""In `StatusPage.clusters`: the cluster answers."""
NOT_CHECKED = "NotChecked"
"""In `TableStatus.held`: the aggregator has not been able to compare the table with its server yet."""


class Phase(StrEnum):
    """What the owner of a stream does."""

    STARTING = "STARTING"
    """It finds out where to begin."""
    REPLAY = "REPLAY"
    """It sends again what an earlier owner left in flight."""
    CONSUME = "CONSUME"
    """It loads new messages."""
    STOPPED = "STOPPED"
    """It waits for a decision; see `stopped`."""


class StreamCounters(Answer):
    """Counts since this owner has the stream. Their names are in snake case since the first contract."""

    model_config = ConfigDict(alias_generator=None)

    blocks: int
    """Blocks acknowledged."""
    rows: int
    """Rows of these blocks."""
    replays: int
    """Blocks sent again."""
    deduplicated: int
    """Blocks that the server recognised as stored."""
    by_provenance: int
    """Blocks decided by the rows' provenance columns."""
    dead: int
    """Messages that became dead letters."""
    rounds: int
    """Rounds that were sealed."""


class RaisedAlarm(Answer):
    """Something a person must know."""

    reason: str
    """One word in CamelCase, with a row in the runbook."""
    message: str
    """What happened."""
    table: int | None
    """Number of the table in the schema history; null: no single table."""


class StopReason(Answer):
    """Why a stream must not be consumed."""

    reason: str
    """One word in CamelCase."""
    message: str
    """What happened, and what to do."""


class BlockInFlight(Answer):
    """A block whose intent is committed to Kafka and that is not acknowledged yet."""

    table: str
    """`database.table`."""
    begin: int
    """Offset of its first message."""
    end: int
    """Offset of its last message."""
    messages: int
    """Messages in it."""
    stage: str
    """`sealed`, `inserting`, `replay` or `blocked`."""
    reason: str
    """Why it waits for a decision; empty while it does not."""
    since_ms: int = 0
    """When its intent was written, Unix milliseconds. Absent or 0: not known."""
    error: str = ""
    """What the last try to store it met. Absent or empty: nothing, or it is not known."""


class Standing(Answer):
    """Something that stands still although messages wait for it."""

    reason: str
    """One word in CamelCase, with a section in the runbook of metrics and alerts."""
    text: str
    """What is known about the cause."""
    since_ms: int
    """When it moved last, Unix milliseconds."""


class LaggingTable(Answer):
    """A table that is behind the position of its stream."""

    table: str
    """`database.table`."""
    cursor: int
    """Everything of the table below this offset is stored."""
    pending: int
    """Messages of the table between its cursor and the position."""
    distance: int | None = Field(default=None, exclude_if=absent)
    """Offsets between its cursor and the high watermark: other tables' messages are among them. Absent: not known."""
    reason: str = ""
    """Why they are not stored, one word in CamelCase. Absent or empty: not known."""
    since_ms: int = 0
    """Since when its cursor has not moved, Unix milliseconds. Absent or 0: not known."""


class StreamStatus(Answer):
    """One stream that this aggregator owns.

    The keys `position`, `logEnd`, `lag`, `seq`, `inFlight` and `lagging` are absent together while the stream's state
    is not known: in STARTING, and mostly in STOPPED. `lag` and `lagSeconds` are absent, too, while no broker answers
    where the log ends and no message is known to wait.
    """

    stream: str
    """`cluster/topic/partition`."""
    epoch: int
    """Counts the assignments of the stream to this process."""
    state: Phase
    """What its owner does."""
    counters: StreamCounters
    """What this owner has done."""
    alarms: tuple[RaisedAlarm, ...]
    """The last alarms, at most 20."""
    stopped: StopReason | None = Field(default=None, exclude_if=absent)
    """Why it is stopped. Absent: it is not."""
    position: int | None = Field(default=None, exclude_if=absent)
    """Next offset to read. Absent: not known yet."""
    log_end: int | None = Field(default=None, exclude_if=absent)
    """End of the log, as last seen. Absent: not known yet."""
    lag: int | None = Field(default=None, exclude_if=absent)
    """Messages that are not stored: from the position to the high watermark, in flight, or pending of a lagging table.
    Before `highWatermark` was known: from the position to `logEnd`. Absent: not known yet, which is not zero."""
    seq: int | None = Field(default=None, exclude_if=absent)
    """Number of the last commit. Absent: not known yet."""
    in_flight: tuple[BlockInFlight, ...] | None = Field(default=None, exclude_if=absent)
    """Blocks that are not acknowledged. Absent: not known yet."""
    lagging: tuple[LaggingTable, ...] | None = Field(default=None, exclude_if=absent)
    """Tables behind the position. Absent: not known yet."""
    high_watermark: int | None = Field(default=None, exclude_if=absent)
    """End of the log, as the broker itself last answered. Absent: it has not answered yet."""
    last_stable: int | None = Field(default=None, exclude_if=absent)
    """The same below every open transaction: what may be read. Absent as `highWatermark` is."""
    ends_at_ms: int | None = Field(default=None, exclude_if=absent)
    """When the broker answered so, Unix milliseconds. Absent as `highWatermark` is."""
    stored: int | None = Field(default=None, exclude_if=absent)
    """Everything below this offset is stored. Absent: not known."""
    lag_seconds: float | None = Field(default=None, exclude_if=absent)
    """Age of the oldest message that is not stored, by when the log's end passed it; 0: all are. Absent: not known."""
    lag_by_rate: float | None = Field(default=None, exclude_if=absent)
    """Seconds it would take to store the lag at the rate of the last minute. Absent: not known, or none is stored."""
    arriving: float | None = Field(default=None, exclude_if=absent)
    """Messages a second by which the log grew in the last minute. Absent: not known."""
    storing: float | None = Field(default=None, exclude_if=absent)
    """Messages a second that were stored in the last minute. Absent: not known."""
    standing: Standing | None = Field(default=None, exclude_if=absent)
    """That it stands still, and why. Absent: it moves, or nothing waits, or it is not known."""
    letters: tuple[TableLetters, ...] = ()
    """Dead letters of the last day, of the 20 tables with the newest. Absent or empty: none."""

    @property
    def blocks(self) -> tuple[BlockInFlight, ...]:
        """The blocks known to be in flight."""
        return self.in_flight or ()

    @property
    def lagging_tables(self) -> tuple[LaggingTable, ...]:
        """The tables known to lag."""
        return self.lagging or ()

    @property
    def drained(self) -> bool:
        """Whether everything up to the end of the log is stored, and known to be."""
        return self.state is Phase.CONSUME and self.lag == 0 and not self.blocks and not self.lagging_tables

    @property
    def stored_below(self) -> int | None:
        """The offset below which every message is stored; None while the position is not known."""
        if self.position is None:
            return None
        return min([self.position, *(b.begin for b in self.blocks), *(t.cursor for t in self.lagging_tables)])


class TableStatus(Answer):
    """One table of the pipeline, as this aggregator sees it."""

    name: str
    """`database.table`."""
    id: int
    """Its number in the schema history."""
    revision: int
    """Its schema revision: how many there are."""
    held: str
    """Why it is not loaded, one word in CamelCase; empty: it is. `NotChecked`: not compared with the server yet."""
    why: str
    """The same in full; empty when it is loaded."""
    rollout: str
    """The rollout that holds it; empty without one."""
    held_since_ms: int = 0
    """When that began, Unix milliseconds; 0 without one. Absent: not known."""
    as_declared: str = ""
    """The declaration which the table was last found to equal, as `rollouts.declaration_digest` names it, while the
    server still has the table as it was then. Absent or empty: not known."""
    hazards: tuple[Hazard, ...]
    """What makes it unsafe to load."""


class RestartStatus(Answer):
    """Demands of rollouts that the aggregators of the shard restart, by number; 0: none yet."""

    demanded: int = Field(validation_alias="wanted", serialization_alias="wanted")
    """The last demand."""
    seen: int
    """The last demand when this process started: up to it, nothing is left to do."""


class StatusPage(Answer):
    """What an aggregator does at this moment. Figures over time are in `/metrics`."""

    pipeline: str
    """Its pipeline."""
    shard: str
    """Its ClickHouse shard."""
    replica: str
    """Its ClickHouse replica, which is also its name in the consumer groups."""
    ready: bool
    """Whether it has started."""
    waits: StartWait | None = Field(default=None, exclude_if=absent)
    """What its start is at. Absent: it has started, or no part of its start has begun, or it is not known."""
    suspended: bool = False
    """Whether it owns no stream on purpose. Absent: it cannot be suspended."""
    restart: RestartStatus = RestartStatus(demanded=0, seen=0)
    """Demands to restart. Absent: it does not know of any."""
    away: str = ""
    """Why it stays out of the consumer groups, so that it owns no stream. Absent or empty: it does not."""
    unfit: str = ""
    """Why its ClickHouse replica takes no rows. Absent or empty: it takes them, or it is not known."""
    clusters: dict[str, str]
    """By Kafka cluster: `ok`, or what is wrong with it."""
    partitions: dict[str, int] = {}
    """By `cluster/topic`: how many partitions it has, as last answered. A topic that is absent is not known."""
    streams: tuple[StreamStatus, ...]
    """The streams it owns."""
    tables: tuple[TableStatus, ...]
    """The tables of the pipeline."""

    @property
    def standing(self) -> dict[str, Standing]:
        """The streams that stand still, and why."""
        return {stream.stream: stream.standing for stream in self.streams if stream.standing is not None}

    @property
    def cluster_errors(self) -> dict[str, str]:
        """The Kafka clusters that do not answer, and why."""
        return {name: state for name, state in self.clusters.items() if state != CLUSTER_OK}

    def stream(self, name: str) -> StreamStatus | None:
        """One of its streams, by `cluster/topic/partition`."""
        return next((stream for stream in self.streams if stream.stream == name), None)

    def table(self, name: str) -> TableStatus | None:
        """One of the tables, by `database.table`."""
        return next((table for table in self.tables if table.name == name), None)

    def in_flight(self, table: str, *stages: str) -> tuple[BlockInFlight, ...]:
        """The blocks of `database.table` in any stream that are at one of `stages`."""
        return tuple(b for stream in self.streams for b in stream.blocks if b.table == table and b.stage in stages)


_REFUSALS = {304: "The ETag of If-None-Match is still its own. No body.", 401: "The token is missing or wrong."}
STATUS = Endpoint("GET", "/status", "What the aggregator does.", StatusPage, refusals=_REFUSALS)
ENDPOINTS = (STATUS,)


def counters_of(counts: dict[str, Any]) -> StreamCounters:
    """Counters from their names; an unknown or missing name is an error. Raises TypeError."""
    if missing := counts.keys() ^ StreamCounters.model_fields.keys():
        raise TypeError(f"the contract and the aggregator differ in counters: {', '.join(sorted(missing))}")
    return StreamCounters(**counts)
