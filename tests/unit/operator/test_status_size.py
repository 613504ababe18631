"""A pipeline's status is read and written with every change in one of its shards, so it must not grow with them."""

from __future__ import annotations

import json

import pytest

from blockhouse_operator.api.conditions import ConditionType, Reason, condition, merged
from blockhouse_operator.api.status import ClickHouseShardIngestStatus, ReplicaStatus, StreamCount, VerifierStatus
from blockhouse_operator.decide.pipeline import PipelineSeen, ShardState, describe_pipeline
from blockhouse_operator.reconcile.report import as_json
from tests.unit.operator.resources import pipeline

SHARDS = 2050
MANY = pipeline(
    ("spec.shards", SHARDS),
    ("spec.zookeeper.ensembles.0.shards", {"from": 0, "to": SHARDS - 1}),
    ("spec.clickhouse.remoteServers", "None"),
)
LONG = "why " * 500


def state(number: int, well: bool) -> ShardState:
    """A shard of which everything is well, or nothing, with the longest message a shard reports."""
    conditions = [
        condition(kind, well, Reason.AS_SPECIFIED if well else Reason.QUORUM_STUCK, "" if well else LONG)
        for kind in ConditionType
        if not well or kind is not ConditionType.SUSPENDED
    ]
    replicas = tuple(ReplicaStatus(name=f"events-{number}-dc-a-{n}", message=LONG) for n in range(4))
    streams = StreamCount(expected=8, owned=8 if well else 0)
    return ShardState(number, ClickHouseShardIngestStatus(conditions=conditions, replicas=replicas, streams=streams))


def size(seen: PipelineSeen) -> int:
    """Bytes of the status as it is written."""
    status, conditions = describe_pipeline(MANY.spec, seen)
    timed = merged((), conditions, generation=999, now="2026-01-01T00:00:00Z")
    return len(json.dumps(as_json(status.model_copy(update={"conditions": timed, "observed_generation": 999}))))


@pytest.mark.parametrize("well", [True, False])
@pytest.mark.parametrize("obstacles", [(), (LONG, LONG)], ids=["", "obstacles"])
def test_the_status_of_2050_shards_is_below_10_kb(well: bool, obstacles: tuple[str, ...]) -> None:
    shards = tuple(state(number, well) for number in range(SHARDS))
    surplus = tuple(range(SHARDS, SHARDS + 2000))
    silent = PipelineSeen(shards, surplus, LONG, None, LONG, refused=obstacles, unpublished=obstacles)
    found = PipelineSeen(shards, surplus, LONG, VerifierStatus(verdict="anomalies", anomalies=10**9))

    assert size(silent) < 10_000
    assert size(found) < 10_000
