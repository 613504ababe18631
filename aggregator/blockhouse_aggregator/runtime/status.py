"""The status page: what every stream is doing, as JSON. Small, stable names; figures over time are metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.holds import Hold
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.runtime.catalog import Catalog
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.hazards import HazardWatch
from blockhouse_aggregator.runtime.owner import StreamOwner
from blockhouse_aggregator.runtime.presence import Suspension
from blockhouse_aggregator.runtime.restarting import Restarting


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


def status(aggregator: Answerable) -> Mapping[str, Any]:
    catalog: Catalog | None = getattr(aggregator, "catalog", None)
    config = aggregator.config
    restarting: Restarting | None = getattr(aggregator, "restarting", None)
    return {
        "pipeline": config.pipeline,
        "shard": config.shard,
        "replica": config.replica,
        "ready": aggregator.ready,
        "suspended": aggregator.suspension.suspended,
        "restart": restarting.page if restarting is not None else {"wanted": 0, "seen": 0},
        "clusters": {
            cluster.name: aggregator.cluster_errors.get(cluster.name, "ok") for cluster in config.kafka.clusters
        },
        "streams": [stream_status(owner, catalog) for _, owner in sorted(aggregator.owners.items())],
        "tables": [
            {
                "name": k.history.name,
                "id": k.history.id,
                "revision": len(k.history.revisions),
                "held": k.held,
                "why": k.why,
                **_hold(catalog.hold_of(k.history.name) if catalog else None),
                "hazards": [{"reason": h.reason, "text": h.text} for h in aggregator.hazards.of(k)],
            }
            for k in (catalog.tables if catalog else ())
        ],
    }


def _hold(hold: Hold | None) -> Mapping[str, Any]:
    return {"rollout": hold.rollout if hold else "", "heldSinceMs": hold.since_ms if hold else 0}


def stream_status(owner: StreamOwner, catalog: Catalog | None) -> Mapping[str, Any]:
    state = owner.state
    found: dict[str, Any] = {
        "stream": str(owner.stream),
        "epoch": owner.epoch,
        "state": phase(owner),
        "counters": asdict(owner.report.counters),
        "alarms": [asdict(alarm) for alarm in owner.report.alarms],
    }
    if owner.stop is not None:
        found["stopped"] = asdict(owner.stop)
    if state is None:
        return found
    found |= {
        "position": state.position,
        "logEnd": owner.log_end,
        "lag": max(0, owner.log_end - state.position),
        "seq": state.seq,
        "inFlight": [
            {
                "table": catalog.name(t.table) if catalog else t.table,
                "begin": t.block.intent.begin,
                "end": t.block.intent.end,
                "messages": t.block.intent.messages,
                "stage": t.block.stage.value,
                "reason": t.block.reason,
            }
            for t in state.in_flight
            if t.block is not None
        ],
        "lagging": [
            {"table": catalog.name(t.table) if catalog else t.table, "cursor": t.cursor, "pending": t.pending}
            for t in state.tables
            if t.cursor is not None
        ],
    }
    return found


def phase(owner: StreamOwner) -> str:
    """STOPPED, STARTING, REPLAY (inherited blocks are not acknowledged yet) or CONSUME."""
    if owner.stop is not None:
        return "STOPPED"
    if owner.state is None:
        return "STARTING"
    return "REPLAY" if owner.state.replaying else "CONSUME"
