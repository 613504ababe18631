"""What the simulated programs answer: values of the same contract as the real ones (`blockhouse.contract`). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum

from blockhouse.config.mirror import MirrorConfig
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.contract.aggregator import (
    CLUSTER_OK,
    Phase,
    RestartStatus,
    StatusPage,
    StopReason,
    StreamStatus,
    TableStatus,
    counters_of,
)
from blockhouse.contract.mirror import MirrorPartition, MirrorStatus, MirrorTask, OffendingPartition
from blockhouse.contract.verifier import AnomalyReport, Verdict
from blockhouse_aggregator.runtime.stream.reporting import Counters
from e2e.simulator.groups import Owned

NO_RESTART = RestartStatus(demanded=0, seen=0)
SINCE = "2026-01-01T00:00:00.000Z"


class Play(StrEnum):
    """What a pod plays, by its annotation `simulator.blockhouse.test/play`."""

    WELL = "well"
    SILENT = "silent"
    """It hangs up on every client."""
    REPLAYING = "replaying"
    """It never gets to the end of what it inherited."""
    STOPPED = "stopped"
    """Its streams, or a partition of a mirror, wait for a decision."""
    ANOMALIES = "anomalies"
    """A verifier that has found something."""


def status(
    config: AggregatorConfig,
    owned: Sequence[Owned],
    *,
    ready: bool,
    now: float,
    play: Play = Play.WELL,
    suspended: bool = False,
    restart: RestartStatus = NO_RESTART,
    tables: Sequence[TableStatus] = (),
) -> StatusPage:
    """The status page of an aggregator that has nothing to do."""
    return StatusPage(
        pipeline=config.pipeline,
        shard=config.shard,
        replica=config.replica,
        ready=ready,
        suspended=suspended,
        restart=restart,
        clusters={cluster.name: CLUSTER_OK for cluster in config.kafka.clusters},
        streams=tuple(stream_status(one, now, play) for one in owned),
        tables=tuple(tables),
    )


def stream_status(owned: Owned, now: float, play: Play = Play.WELL) -> StreamStatus:
    """A stream whose log is empty."""
    stream, counters = str(owned.stream), counters_of(asdict(Counters()))
    if play is Play.STOPPED:
        stopped = StopReason(reason="PositionLost", message="played by the simulator")
        return StreamStatus(
            stream=stream, epoch=owned.epoch, state=Phase.STOPPED, counters=counters, alarms=(), stopped=stopped
        )
    return StreamStatus(
        stream=stream,
        epoch=owned.epoch,
        state=Phase.REPLAY if play is Play.REPLAYING else owned.phase(now),
        counters=counters,
        alarms=(),
        position=0,
        log_end=0,
        lag=0,
        seq=0,
        in_flight=(),
        lagging=(),
        high_watermark=0,
        last_stable=0,
        ends_at_ms=int(now * 1000),
        stored=0,
        lag_seconds=0.0,
        lag_by_rate=0.0,
    )


def verdict(pipeline: str, streams: int, play: Play = Play.WELL) -> Verdict:
    """The verdict of a verifier."""
    found = anomalies(pipeline, play)
    return Verdict(
        pipeline=pipeline,
        verdict="anomalies" if found else "clean",
        anomalies=len(found),
        streams=streams,
        since=SINCE,
        at=SINCE,
        coverage={},
        latest=found[0] if found else None,
    )


def anomalies(pipeline: str, play: Play = Play.WELL) -> list[AnomalyReport]:
    """What a verifier has found."""
    if play is not Play.ANOMALIES:
        return []
    return [
        AnomalyReport(
            id="played",
            kind="gap",
            message="played by the simulator",
            stream=f"a/{pipeline}/0",
            cluster="a",
            group=pipeline,
            table=None,
            first=None,
            last=None,
            before="",
            after="",
            at=SINCE,
            found=SINCE,
            ended=None,
            log_partition=0,
            log_offset=0,
        )
    ]


def mirror_status(config: MirrorConfig, asked: int, play: Play = Play.WELL) -> MirrorStatus:
    """The status of a mirror of two partitions that was `asked` so often for even tasks; the second one is heavy."""
    stopped = "RetentionOvertook" if play is Play.STOPPED else ""
    heavy = OffendingPartition(topic="t", partition=1, bytes_per_second=12e6, share=1.6, advice="more partitions")
    return MirrorStatus(
        mirror=config.name,
        source=config.source.name,
        target=config.target.name,
        delivery=config.delivery,
        tasks=(MirrorTask(name="task0", running=True, partitions=2, bytes_per_second=13e6),),
        capped_by="",
        quality=1.0,
        load_age_seconds=1.0,
        rebalances={"Requested": asked},
        moved=0,
        latency_seconds=0.1,
        partitions=(
            MirrorPartition(topic="t", partition=0, task="task0", holder="task0", bytes_per_second=1e6),
            MirrorPartition(
                topic="t", partition=1, task="task0", holder="task0", bytes_per_second=12e6, stopped=stopped
            ),
        ),
        offending=(heavy,),
        errors={},
    )
