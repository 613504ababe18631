"""What the simulated programs answer, in the words of the real ones (docs/configuration.md, docs/verifier.md). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse_aggregator.protocol.takeover import Stop
from blockhouse_aggregator.runtime.reporting import Counters
from e2e.simulator.groups import Owned

NO_RESTART: Mapping[str, int] = {"wanted": 0, "seen": 0}


class Play(StrEnum):
    """What a pod is told to play by its annotation `simulator.blockhouse.test/play`."""

    WELL = "well"
    SILENT = "silent"
    """It hangs up on everybody."""
    REPLAYING = "replaying"
    """It never gets to the end of what it inherited."""
    STOPPED = "stopped"
    """Its streams wait for a decision."""
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
    restart: Mapping[str, int] = NO_RESTART,
    tables: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The status page of an aggregator that has nothing to do."""
    return {
        "pipeline": config.pipeline,
        "shard": config.shard,
        "replica": config.replica,
        "ready": ready,
        "suspended": suspended,
        "restart": dict(restart),
        "clusters": {cluster.name: "ok" for cluster in config.kafka.clusters},
        "streams": [stream_status(one, now, play) for one in owned],
        "tables": list(tables),
    }


def stream_status(owned: Owned, now: float, play: Play = Play.WELL) -> dict[str, Any]:
    known = {
        "stream": str(owned.stream),
        "epoch": owned.epoch,
        "state": owned.phase(now),
        "counters": asdict(Counters()),
        "alarms": [],
    }
    if play is Play.STOPPED:
        return known | {"state": "STOPPED", "stopped": asdict(Stop("PositionLost", "played by the simulator"))}
    if play is Play.REPLAYING:
        known["state"] = "REPLAY"
    return known | {"position": 0, "logEnd": 0, "lag": 0, "seq": 0, "inFlight": [], "lagging": []}


def verdict(pipeline: str, streams: int, play: Play = Play.WELL) -> dict[str, Any]:
    """The verdict of a verifier."""
    found = play is Play.ANOMALIES
    return {
        "pipeline": pipeline,
        "verdict": "anomalies" if found else "clean",
        "anomalies": int(found),
        "streams": streams,
        "since": "2026-01-01T00:00:00.000Z",
        "coverage": {},
        "latest": {"kind": "gap", "message": "played by the simulator"} if found else None,
    }
