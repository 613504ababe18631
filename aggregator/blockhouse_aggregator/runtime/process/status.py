"""The status page: what every stream is doing. Its keys are those of the contract; figures over time are metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.contract.aggregator import (
    CLUSTER_OK,
    BlockInFlight,
    LaggingTable,
    Phase,
    RaisedAlarm,
    RestartStatus,
    StatusPage,
    StopReason,
    StreamStatus,
    TableStatus,
    counters_of,
)
from blockhouse.contract.notices import Hazard, StartWait
from blockhouse.streams import StreamId
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.protocol.state import Block, StreamState
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.process.lag_watch import Lag, LagWatch
from blockhouse_aggregator.runtime.process.membership import Suspension
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.tables.catalog import Catalog, Known
from blockhouse_aggregator.runtime.tables.hazards import HazardWatch
from blockhouse_aggregator.runtime.tables.restarts import RestartRequests

PASSING_REASONS = ("", "CatchingUp", "Inserting", "Replaying", "NotChecked")
"""Of tables that lag: what passes by itself, and asks for nothing."""


class Answerable(Protocol):
    """What the admin API needs of an aggregator."""

    ready: bool
    config: AggregatorConfig
    figures: Figures
    hazards: HazardWatch
    suspension: Suspension
    faults: Faults
    owners: dict[StreamId, StreamOwner]
    cluster_errors: dict[str, str]

    @property
    def catalog(self) -> Catalog | None:
        """None until the tables are read."""
        ...

    @property
    def restarting(self) -> RestartRequests | None:
        """None until the demands to restart are read."""
        ...

    @property
    def lag(self) -> LagWatch | None: ...

    @property
    def waits(self) -> StartWait | None: ...

    @property
    def partitions(self) -> Mapping[str, int]: ...

    @property
    def why_out(self) -> str: ...

    @property
    def why_unfit(self) -> str: ...


def status(aggregator: Answerable) -> StatusPage:
    """What the aggregator does at this moment; also before it has read its tables and its demands to restart."""
    catalog, restarting = aggregator.catalog, aggregator.restarting
    config = aggregator.config
    return StatusPage(
        pipeline=config.pipeline,
        shard=config.shard,
        replica=config.replica,
        ready=aggregator.ready,
        waits=aggregator.waits,
        suspended=aggregator.suspension.suspended,
        restart=restarting.status if restarting is not None else RestartStatus(demanded=0, seen=0),
        away=aggregator.why_out,
        unfit=aggregator.why_unfit,
        clusters={
            cluster.name: aggregator.cluster_errors.get(cluster.name, CLUSTER_OK) for cluster in config.kafka.clusters
        },
        partitions={f"{name}/{config.kafka.topic}": count for name, count in sorted(aggregator.partitions.items())},
        streams=tuple(stream_status(owner, catalog, aggregator.lag) for _, owner in sorted(aggregator.owners.items())),
        tables=tuple(_table(known, catalog, aggregator.hazards) for known in catalog.tables) if catalog else (),
    )


def standing_lines(page: StatusPage) -> list[str]:
    """One line for each thing that stands still: what, since when, why."""
    lines = [f"waits for {page.waits.what} since {_utc(page.waits.since_ms)}: {page.waits.error}"] if page.waits else []
    lines += [f"out of the consumer groups: {page.away}"] if page.away else []
    lines += [f"the replica takes no rows: {page.unfit}"] if page.unfit else []
    for stream in page.streams:
        if (still := stream.standing) is not None:
            lines.append(f"{stream.stream} stands still since {_utc(still.since_ms)}: {still.reason}: {still.text}")
        lines += [
            f"{stream.stream} {table.table}: {table.pending} messages wait since {_utc(table.since_ms)}: {table.reason}"
            for table in stream.lagging_tables
            if table.reason not in PASSING_REASONS
        ]
    return [" ".join(line.split()) for line in lines]


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _table(known: Known, catalog: Catalog, hazards: HazardWatch) -> TableStatus:
    pause = catalog.pause_of(known.history.name)
    return TableStatus(
        name=known.history.name,
        id=known.history.id,
        revision=len(known.history.revisions),
        held=known.unavailable,
        why=known.why,
        rollout=pause.rollout if pause else "",
        held_since_ms=pause.since_ms if pause else 0,
        as_declared=catalog.as_declared(known),
        hazards=tuple(Hazard(reason=hazard.reason, text=hazard.text) for hazard in hazards.of(known)),
    )


def stream_status(owner: StreamOwner, catalog: Catalog | None, watch: LagWatch | None) -> StreamStatus:
    """One stream; what is not known before its owner has a state is absent."""
    lag = watch.of(owner.stream) if watch is not None else Lag()
    progress = _progress(owner, owner.state, catalog, watch, lag) if owner.state is not None else _Progress()
    return StreamStatus(
        stream=str(owner.stream),
        epoch=owner.epoch,
        state=phase(owner),
        counters=counters_of(asdict(owner.report.counters)),
        alarms=tuple(RaisedAlarm(**asdict(alarm)) for alarm in owner.report.alarms),
        stopped=StopReason(**asdict(owner.stop)) if owner.stop is not None else None,
        position=progress.position,
        log_end=progress.log_end,
        lag=lag.messages if lag.messages is not None else progress.unread,
        seq=progress.seq,
        in_flight=progress.in_flight,
        lagging=progress.lagging,
        high_watermark=lag.ends.high if lag.ends is not None else None,
        last_stable=lag.ends.stable if lag.ends is not None else None,
        ends_at_ms=lag.ends_at_ms,
        stored=lag.stored,
        lag_seconds=_rounded(lag.seconds),
        lag_by_rate=_rounded(lag.by_rate),
        arriving=_rounded(lag.arriving),
        storing=_rounded(lag.storing),
        standing=lag.standing,
        letters=owner.report.letters.recent(),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


class _Progress(NamedTuple):
    """What of a StreamStatus is known together, once the owner has a state."""

    position: int | None = None
    log_end: int | None = None
    unread: int | None = None
    seq: int | None = None
    in_flight: tuple[BlockInFlight, ...] | None = None
    lagging: tuple[LaggingTable, ...] | None = None


def _progress(
    owner: StreamOwner, state: StreamState, catalog: Catalog | None, watch: LagWatch | None, lag: Lag
) -> _Progress:

    def name(table: int) -> str:
        return catalog.name(table) if catalog else str(table)

    ends = lag.ends
    in_flight = [_block(owner, name(t.table), t.block) for t in state.in_flight if t.block is not None]
    lagging = []
    for t in state.tables:
        if t.cursor is not None:
            (reason, _), since_ms = watch.table(owner.stream, t) if watch is not None else (("", ""), 0)
            distance = max(0, max(ends.high, owner.log_end) - t.cursor) if ends is not None else None
            lagging.append(
                LaggingTable(
                    table=name(t.table),
                    cursor=t.cursor,
                    pending=t.pending,
                    distance=distance,
                    reason=reason,
                    since_ms=since_ms,
                )
            )
    return _Progress(
        position=state.position,
        log_end=owner.log_end,
        unread=max(0, owner.log_end - state.position) if not lag.silent else None,
        seq=state.seq,
        in_flight=tuple(in_flight),
        lagging=tuple(lagging),
    )


def _block(owner: StreamOwner, table: str, block: Block) -> BlockInFlight:
    return BlockInFlight(
        table=table,
        begin=block.intent.begin,
        end=block.intent.end,
        messages=block.intent.messages,
        stage=block.stage.value,
        reason=block.reason,
        since_ms=block.intent.intent_ms,
        error=owner.report.troubles.get(table, ""),
    )


def phase(owner: StreamOwner) -> Phase:
    """What the owner does; REPLAY while inherited blocks are not acknowledged yet."""
    if owner.stop is not None:
        return Phase.STOPPED
    if owner.state is None:
        return Phase.STARTING
    return Phase.REPLAY if owner.state.replaying else Phase.CONSUME
