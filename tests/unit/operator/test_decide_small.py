"""Claims, references, pods, paths, removal, and what wakes whom."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from blockhouse.contract import aggregator as contract
from blockhouse.contract.aggregator import Phase, StopReason
from blockhouse_aggregator.protocol.takeover import Stop
from blockhouse_aggregator.runtime.tables.catalog import NOT_CHECKED
from blockhouse_operator.adapters.pipeline_http import aggregator_seen, verifier_seen
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.decide.claims import Claimant, conflict
from blockhouse_operator.decide.deferred import RestartDeferred
from blockhouse_operator.decide.paths import replication_path
from blockhouse_operator.decide.pods import pod_seen
from blockhouse_operator.decide.references import references
from blockhouse_operator.decide.removal import DeleteReplica, Drain, Unregister, plan_removal
from blockhouse_operator.decide.replication import ReplicationSeen
from blockhouse_operator.decide.seen import BegunStep, ReplicaSeen
from blockhouse_operator.handlers.freshness import MISSED_SECONDS, Freshness
from blockhouse_operator.handlers.keys import Key, of_child, of_resource
from tests.contract_values import NONE_DONE, block, lagging, page, stream, table, verdict
from tests.unit.operator.resources import pipeline
from tests.unit.operator.shard_world import consuming, shard, spec_of, unready

SPEC = spec_of(3)
NAMES = [replica.name for replica in SPEC.replicas]
WELL = [consuming(name) for name in NAMES]


def claimant(created: str, uid: str, **meta: Any) -> Claimant:
    parsed: BlockAggregator = pipeline()
    return Claimant(replace(parsed, uid=uid, **meta), created)


def test_the_younger_of_two_claims_is_refused_and_the_older_is_not() -> None:
    old, young = claimant("2026-01-01T00:00:00Z", "a", name="old"), claimant("2026-01-02T00:00:00Z", "b", name="young")
    refused = conflict(young, [young, old])
    assert refused is not None
    assert "data/old" in refused
    assert conflict(old, [young, old]) is None


def test_two_of_the_same_second_do_not_both_win() -> None:
    one, two = claimant("2026-01-01T00:00:00Z", "a"), claimant("2026-01-01T00:00:00Z", "b")
    assert [conflict(c, [one, two]) is None for c in (one, two)] == [True, False]


def test_pipelines_of_other_topics_groups_and_subtrees_do_not_meet() -> None:
    other = pipeline(
        ("metadata.name", "other"),
        ("spec.kafka.groupTemplate", "other-{shard}"),
        ("spec.kafka.topic.nameTemplate", "other-{shard}"),
    )
    mine = claimant("2026-01-02T00:00:00Z", "b")
    assert conflict(mine, [mine, Claimant(replace(other, uid="a"), "2026-01-01T00:00:00Z")]) is None


def test_every_reference_of_a_spec_is_found() -> None:
    found = {str(reference) for reference in references(pipeline().spec)}
    assert found == {
        "key views.sql of ConfigMap events-tables",
        "key password of Secret clickhouse-analyst",
        *(
            f"key {key} of Secret kafka-{c}-{what}"
            for c in "ab"
            for key, what in (("ca.crt", "ca"), ("password", "login"))
        ),
    }


def test_a_pod_shows_why_it_waits() -> None:
    waiting = {"name": "aggregator", "restartCount": 2, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    creating = {"name": "clickhouse", "restartCount": 1, "state": {"waiting": {"reason": "ContainerCreating"}}}
    seen = pod_seen({"metadata": {}, "status": {"phase": "Pending", "containerStatuses": [creating, waiting]}})
    assert (seen.trouble, seen.restarts, seen.ready) == ("aggregator: ImagePullBackOff", 3, False)
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    assert pod_seen({"metadata": {}, "status": {"conditions": [unscheduled]}}).trouble == "Unschedulable: no room"
    assert pod_seen({"metadata": {}}).trouble == ""


@pytest.mark.parametrize(
    ("engine", "path"),
    [
        ("ReplicatedMergeTree('/ch/{shard}/{table}', '{replica}')", "/ch/0/t"),
        ("ReplicatedReplacingMergeTree ( '/ch/{cluster}/{database}/x/' , '{replica}', v)", "/ch/events/db/x"),
        ("ReplicatedMergeTree('/ch/{layer}/t', '{replica}')", None),
        ("MergeTree", None),
    ],
)
def test_a_tables_place_in_zookeeper_is_read_from_its_declaration(engine: str, path: str | None) -> None:
    assert replication_path(f"CREATE TABLE db.t (a Int8) ENGINE = {engine} ORDER BY a", "db.t", SPEC) == path


COPIED = ReplicationSeen()
"""The replica to leave is registered for no table."""


def test_a_replica_is_drained_then_forgotten_then_deleted() -> None:
    gone = replace(consuming("old"), scale=0, pod=None, aggregator=None)
    ending = replace(gone, pod=unready(consuming("old")).pod)
    (step,) = plan_removal(SPEC, shard(*WELL, surplus=(consuming("old"),), replication=COPIED))
    assert isinstance(step, Drain)
    (step,) = plan_removal(SPEC, shard(*WELL, surplus=(ending,)))
    assert isinstance(step, RestartDeferred)
    assert [type(s) for s in plan_removal(SPEC, shard(*WELL, surplus=(gone,), replication=COPIED))] == [
        Unregister,
        DeleteReplica,
    ]


def test_of_two_replicas_to_go_the_one_that_was_begun_is_finished_first() -> None:
    ending = replace(consuming("b"), scale=0, aggregator=None)
    (step,) = plan_removal(SPEC, shard(*WELL, surplus=(consuming("a"), ending)))
    assert isinstance(step, RestartDeferred)


def held_by(*replicas: ReplicaSeen, **more: Any) -> Reason:
    (step,) = plan_removal(SPEC, shard(*replicas, surplus=(consuming("old"),), **more))
    assert isinstance(step, RestartDeferred)
    return step.reason


def test_no_replica_is_drained_that_is_still_needed() -> None:
    assert held_by(WELL[0], unready(WELL[1]), unready(WELL[2])) is Reason.NOT_ENOUGH_REPLICAS
    assert held_by(*WELL, begun=BegunStep(NAMES[0], 0)) is Reason.ROLLING_OUT


def test_a_replica_stays_known_while_zookeeper_cannot_be_updated() -> None:
    gone = replace(consuming("old"), scale=0, pod=None, aggregator=None)
    (step,) = plan_removal(SPEC, shard(*WELL, surplus=(gone,), zookeeper_trouble="down"))
    assert isinstance(step, RestartDeferred)
    assert step.reason is Reason.ZOOKEEPER_UNREACHABLE


def test_children_wake_their_shard_or_their_pipeline() -> None:
    group = "ingest.blockhouse.dev"
    of_shard = {"namespace": "n", "name": "x", "labels": {f"{group}/pipeline": "p", f"{group}/shard": "3"}}
    assert of_child({"metadata": of_shard}) == Key("shard", "n", "p-3")
    of_pipeline = of_shard | {"labels": {f"{group}/pipeline": "p"}}
    assert of_child({"metadata": of_pipeline}) == Key("pipeline", "n", "p")
    assert of_child({"metadata": {"namespace": "n", "name": "x"}}) is None
    assert of_resource({"kind": "BlockAggregator", "metadata": of_shard}) == Key("pipeline", "n", "x")
    assert of_resource({"kind": "Pod", "metadata": of_shard}) is None


def test_a_watch_is_dead_when_a_list_finds_what_it_did_not_report() -> None:
    watch = Freshness()
    assert watch.found("u", 1, at=0)
    assert not watch.missed(at=MISSED_SECONDS)
    assert watch.missed(at=MISSED_SECONDS + 1)
    assert watch.reported("u", 1)
    assert not watch.missed(at=MISSED_SECONDS + 1)


def test_an_idle_watch_is_not_dead_and_only_new_specs_are_changes() -> None:
    watch = Freshness()
    assert watch.reported("u", 1)
    assert not watch.reported("u", 1)
    assert not watch.found("u", 1, at=0)
    assert not watch.missed(at=1e9)
    assert watch.found("u", 2, at=10)
    watch.keep_only(set())
    assert not watch.missed(at=1e9), "an object that is gone is missed by no one"


def test_a_stream_is_cold_until_its_owner_has_stored_something_of_it() -> None:
    read, lags = NONE_DONE.model_copy(update={"rounds": 1}), (lagging(),)
    for each, expected in (
        (stream(lag=3), True),
        (stream(lag=3, lagging=lags), True),
        (stream(), False),
        (stream(lag=None), False),
        (stream(counters=read, in_flight=(block(),)), True),
        (stream(lag=3, counters=read, in_flight=(block(reason="NoQuorum"),)), False),
        (stream(lag=3, counters=read, lagging=lags), False),
        (stream(lag=3, counters=NONE_DONE.model_copy(update={"blocks": 1})), False),
        (stream(lag=3, counters=NONE_DONE.model_copy(update={"dead": 2})), False),
        (stream(lag=3, state=Phase.REPLAY), False),
    ):
        assert aggregator_seen(page(each)).streams[0].cold is expected, each


def test_a_drained_stream_is_one_of_which_nothing_is_left() -> None:
    drained, busy = aggregator_seen(page(stream(), stream("a/t/1", lagging=(lagging(),)))).streams
    assert drained.drained
    assert not busy.drained


def test_a_table_that_waits_for_its_server_is_distinguished_from_one_that_waits_for_a_decision() -> None:
    for reason, checked in ((NOT_CHECKED, False), ("UnknownTable", True), ("", True)):
        found = table(held=reason, why="because" if reason else "")
        assert aggregator_seen(page(tables=(found,))).tables[0].checked is checked


def test_what_the_contract_calls_not_checked_is_what_the_aggregator_writes() -> None:
    assert contract.NOT_CHECKED == NOT_CHECKED


def test_why_a_stream_is_stopped_is_passed_on() -> None:
    stop = StopReason(**asdict(Stop("PositionLost", "offset 7 is gone")))
    found = aggregator_seen(page(stream(state=Phase.STOPPED, stopped=stop)))
    assert found.streams[0].why == "PositionLost offset 7 is gone"


def test_a_verdict_becomes_the_status_of_the_pipeline() -> None:
    found = verifier_seen(verdict(verdict="anomalies", anomalies=3, since="2026-01-01T00:00:00.000Z"))
    assert (found.verdict, found.anomalies, found.streams) == ("anomalies", 3, 4)
    assert found.since == "2026-01-01T00:00:00.000Z"
    assert verifier_seen(verdict()).since == ""
