"""Demands of a person to restart, and the windows in which restarts may begin."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockhouse.config.units import seconds
from blockhouse_operator.api.conditions import ConditionType, Reason
from blockhouse_operator.api.labels import RESTART
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import ClickHouseShardIngest, parse_shard_ingest
from blockhouse_operator.api.rollout import Window, parallel_shards
from blockhouse_operator.api.status import ClickHouseShardIngestStatus, ReplicaStatus, RestartStatus
from blockhouse_operator.decide.deferred import RestartDeferred
from blockhouse_operator.decide.restarts import demanded, latest_demands, outside_windows
from blockhouse_operator.decide.rollout import DEMANDED, OUTDATED, BeginStep, EndStep, plan_rollout
from blockhouse_operator.decide.seen import BegunStep, ReplicaSeen, ShardSeen, State
from blockhouse_operator.decide.shard import describe_shard, may_end, plan_shard
from blockhouse_operator.decide.shard_conditions import had_quorum
from blockhouse_operator.desired.manifest import content_of
from blockhouse_operator.desired.shard import children, without_pods
from tests.unit.operator.resources import pipeline
from tests.unit.operator.shard_world import consuming, shard, spec_of, unready

SPEC = spec_of(3)
A, B, C = (replica.name for replica in SPEC.replicas)
NOW = "2026-03-01T12:00:00Z"
NIGHTS = Window(start="22:00", duration="4h", time_zone="Europe/Berlin")


def pod(uid: str, **annotations: str) -> dict[str, object]:
    return {"metadata": {"uid": uid, "annotations": annotations}}


def resource() -> ClickHouseShardIngest:
    """Shard 0 as a resource that is to stop."""
    spec = {**content_of(SPEC), "stop": True}
    return parse_shard_ingest({"metadata": {"name": "clicks-0", "namespace": "data", "uid": "1"}, "spec": spec})


def asked(replica: ReplicaSeen) -> ReplicaSeen:
    assert replica.pod is not None
    return replace(replica, pod=replace(replica.pod, restart_demanded=True))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_another_value_of_an_annotation_is_a_demand_and_the_same_one_is_none() -> None:
    first = latest_demands(None, "monday", "", ["b", "a"])
    assert first == RestartStatus(pipeline="monday", pods=("a", "b"))
    assert latest_demands(first, "monday", "", ["c"]) is first
    assert latest_demands(first, "", "", ["c"]) is first, "an annotation that was removed"
    again = latest_demands(first, "monday", "its disk", ["c"])
    assert again == RestartStatus(pipeline="monday", shard="its disk", pods=("c",))
    assert latest_demands(None, "", "", ["a"]) is None


def test_the_pods_that_were_there_are_restarted_whatever_a_clock_shows_and_one_that_is_annotated_itself() -> None:
    known = RestartStatus(pipeline="monday", pods=("a",))
    assert demanded(pod("a"), known)
    assert not demanded(pod("b"), known), "its successor: created by the clock of the API server"
    assert not demanded(pod("a"), None)
    assert demanded(pod("b", **{RESTART: "now"}), None)


def test_a_demanded_restart_is_one_step_of_a_rollout_like_any_other() -> None:
    seen = shard(asked(consuming(A)), consuming(B), consuming(C))
    assert plan_rollout(SPEC, seen) == BeginStep(A, DEMANDED)
    waits = plan_rollout(SPEC, shard(asked(consuming(A)), unready(consuming(B)), consuming(C)))
    assert isinstance(waits, RestartDeferred)
    assert plan_rollout(SPEC, shard(consuming(A, "old"), consuming(B), consuming(C))) == BeginStep(A, OUTDATED)


def test_outside_its_windows_a_shard_restarts_only_what_is_down_or_was_asked_for() -> None:
    old = consuming(A, "old")
    held = plan_rollout(SPEC, shard(old, consuming(B), consuming(C), outside_window="the next window begins at noon"))
    assert held == RestartDeferred(Reason.OUTSIDE_WINDOW, f"{A} is to restart; the next window begins at noon")
    for replica in (asked(old), unready(old)):
        seen = shard(replica, consuming(B), consuming(C), outside_window="later")
        assert isinstance(plan_rollout(SPEC, seen), BeginStep)


def test_a_shard_that_waits_for_its_window_is_settled() -> None:
    waiting = plan_shard(SPEC, shard(consuming(A, "old"), consuming(B), consuming(C), outside_window="later"))
    assert waiting.settled
    assert not plan_shard(SPEC, shard(consuming(A, "old"), unready(consuming(B)), consuming(C))).settled


@pytest.mark.parametrize(
    ("now", "open_"),
    [
        ("2026-01-15T20:59:00+00:00", False),
        ("2026-01-15T21:00:00+00:00", True),
        ("2026-01-16T00:59:00+00:00", True),
        ("2026-01-16T01:00:00+00:00", False),
        ("2026-07-15T19:59:00+00:00", False),
        ("2026-07-15T20:00:00+00:00", True),
    ],
)
def test_a_window_is_one_of_its_zone_and_may_end_on_the_next_day(now: str, open_: bool) -> None:
    assert (outside_windows((NIGHTS,), at(now)) == "") is open_


def test_without_windows_restarts_may_begin_at_any_time() -> None:
    assert outside_windows((), at(NOW)) == ""


def test_of_several_windows_the_next_one_is_named() -> None:
    weekend = Window(days=("Sat", "Sun"), start="03:00", duration="2h")
    text = outside_windows((NIGHTS, weekend), at("2026-01-17T12:00:00+00:00"))
    assert text == "the next window of spec.rollout.windows begins Sat 2026-01-17 22:00 CET"
    assert outside_windows((NIGHTS, weekend), at("2026-01-17T04:00:00+00:00")) == ""


def test_a_window_lasts_as_long_as_it_states_when_the_clocks_change() -> None:
    night = Window(start="01:00", duration="3h", time_zone="Europe/Berlin")  # 02:00 becomes 03:00 on 2026-03-29
    assert outside_windows((night,), at("2026-03-29T02:59:00+00:00")) == ""
    assert outside_windows((night,), at("2026-03-29T03:00:00+00:00")) != ""


@given(
    now=st.datetimes(min_value=datetime(2024, 1, 1), max_value=datetime(2030, 1, 1)),
    start=st.times(),
    lasts=st.integers(10, 24 * 60),
    days=st.sets(st.sampled_from(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))),
    zone=st.sampled_from(("UTC", "Europe/Berlin", "America/New_York", "Pacific/Auckland")),
)
def test_a_window_that_is_closed_opens_within_eight_days(
    now: datetime, start: datetime, lasts: int, days: set[str], zone: str
) -> None:
    window = Window.model_validate(
        {"days": sorted(days), "start": f"{start:%H:%M}", "duration": f"{lasts}m", "timeZone": zone}
    )
    moment = now.replace(tzinfo=at(NOW).tzinfo)
    if outside_windows((window,), moment):
        opened = any(not outside_windows((window,), moment + timedelta(minutes=10 * n)) for n in range(8 * 24 * 6))
        assert opened
        assert seconds(window.duration) >= 600


@pytest.mark.parametrize(
    ("text", "shards", "allowed"), [("1", 2050, 1), ("7", 3, 7), ("10%", 2050, 205), ("10%", 3, 1), ("100%", 40, 40)]
)
def test_a_percentage_of_parallel_shards_is_rounded_down_and_at_least_one(text: str, shards: int, allowed: int) -> None:
    assert parallel_shards(text, shards) == allowed


@pytest.mark.parametrize("zone", ["Mars/Base", "../etc/passwd", ""])
def test_a_time_zone_that_does_not_exist_is_named(zone: str) -> None:
    with pytest.raises(ValueError, match="IANA"):
        Window(start="02:00", duration="1h", time_zone=zone)


STOPPED = SPEC.model_copy(update={"stop": True})


def reported(*states: State) -> ClickHouseShardIngestStatus:
    return ClickHouseShardIngestStatus(
        replicas=tuple(
            ReplicaStatus(name=name, state=state.value) for name, state in zip((A, B, C), states, strict=True)
        )
    )


def test_pods_of_a_shard_that_stops_end_once_no_replica_loads() -> None:
    quiet = reported(State.SUSPENDED, State.SUSPENDED, State.UNREACHABLE)
    assert may_end(STOPPED, quiet)
    assert not may_end(SPEC, quiet)
    assert may_end(STOPPED, ClickHouseShardIngestStatus()), "it has no pods yet"
    for loading in (State.STARTING, State.REPLAYING, State.CONSUMING, State.STOPPED):
        assert not may_end(STOPPED, reported(State.SUSPENDED, loading, State.SUSPENDED))


def test_a_stopped_shard_has_no_pods_and_keeps_its_volumes_and_services() -> None:
    made = children(resource())
    kept = without_pods(made, STOPPED.replica_names())
    assert [each["spec"]["replicas"] for each in kept if each["kind"] == "StatefulSet"] == [0, 0, 0]
    assert [each for each in kept if each["kind"] != "StatefulSet"] == [
        each for each in made if each["kind"] != "StatefulSet"
    ]
    (files,) = (each["data"] for each in made if each["kind"] == "ConfigMap")
    assert files["suspend"] == "true"


def test_nothing_is_done_to_a_stopped_shard_and_a_step_that_was_begun_is_ended() -> None:
    gone = [replace(consuming(name, "old"), pod=None, aggregator=None, scale=0) for name in (A, B, C)]
    leaving = replace(consuming("leaving"), zone="gone")
    assert not plan_shard(STOPPED, shard(*gone, surplus=(leaving,))).steps
    (step,) = plan_shard(STOPPED, shard(*gone, begun=BegunStep(A, 10))).steps
    assert isinstance(step, EndStep)


def test_a_stopped_shard_reports_so_and_is_neither_stalled_nor_without_quorum() -> None:
    gone = [replace(consuming(name), pod=None, aggregator=None, scale=0) for name in (A, B, C)]
    seen = shard(*gone)
    _, found = describe_shard(STOPPED, seen, plan_shard(STOPPED, seen), ())
    states = {each.type: (each.status, each.reason) for each in found}
    assert states["Ready"] == ("False", "ShutDown")
    assert states["Suspended"] == ("True", "ShutDown")
    assert states["QuorumHealthy"] == ("Unknown", "ShutDown")
    assert not {"Stalled", "Reconciling"} & states.keys()
    assert not had_quorum(found), "it is not lost while the pods start again"


def test_what_restarts_wait_for_is_the_reason_of_pods_that_are_not_up_to_date() -> None:
    def state(seen: ShardSeen) -> tuple[str, str]:
        _, found = describe_shard(SPEC, seen, plan_shard(SPEC, seen), ())
        (one,) = (each for each in found if each.type == ConditionType.PODS_UP_TO_DATE.value)
        return one.status, one.reason

    old, others = consuming(A, "old"), (consuming(B), consuming(C))
    assert state(shard(consuming(A), *others)) == ("True", "AsSpecified")
    assert state(shard(old, *others)) == ("False", "RollingOut")
    assert state(shard(old, *others, outside_window="later")) == ("False", "OutsideWindow")
    assert state(shard(asked(consuming(A)), *others)) == ("False", "RollingOut")


def test_the_demand_of_a_pipeline_reaches_its_shards() -> None:
    made = pipeline(("metadata.annotations", {RESTART: "monday"}), ("spec.rollout", {"maxParallelShards": "50%"}))
    spec = resolve(made, 0)
    assert (spec.rollout.restart, spec.rollout.max_parallel_shards) == ("monday", max(1, made.spec.shards // 2))
