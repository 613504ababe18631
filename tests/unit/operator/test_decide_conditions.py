"""What is reported of a shard and of a pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from blockhouse_operator.api.conditions import Condition, ConditionType, Reason, condition, find, merged
from blockhouse_operator.api.status import (
    ClickHouseShardIngestStatus,
    StreamCount,
    TableStatus,
    TopicStatus,
    VerifierStatus,
)
from blockhouse_operator.decide.pipeline import ABOUT_SHARDS, PipelineSeen, ShardState, describe_pipeline
from blockhouse_operator.decide.seen import AggregatorSeen, BegunStep, ReplicaSeen, ShardSeen, StreamSeen, TableSeen
from blockhouse_operator.decide.shard import describe_shard, drained, plan_shard
from blockhouse_operator.decide.shard_conditions import had_quorum
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.decide.transitions import transitions
from tests.unit.operator.resources import pipeline
from tests.unit.operator.shard_world import consuming, shard, spec_of, unready

SPEC = spec_of(3)
NAMES = [replica.name for replica in SPEC.replicas]
STREAMS = expected_streams(SPEC)


def owners(phase: str = "CONSUME", streams: tuple[str, ...] = STREAMS, **more: Any) -> list[ReplicaSeen]:
    """Three replicas that are well and share the streams."""
    return [
        replace(
            consuming(name),
            aggregator=AggregatorSeen(
                True, tuple(StreamSeen(s, phase, **more) for n, s in enumerate(streams) if n % 3 == number)
            ),
        )
        for number, name in enumerate(NAMES)
    ]


def conditions_of(seen: ShardSeen, topics: tuple[TopicStatus, ...] = (), **spec: Any) -> dict[str, Condition]:
    changed = SPEC.model_copy(update=spec)
    _, conditions = describe_shard(changed, seen, plan_shard(changed, seen), topics)
    return {found.type: found for found in conditions}


def ready(seen: ShardSeen, **spec: Any) -> tuple[str, str]:
    found = conditions_of(seen, **spec)["Ready"]
    return found.status, found.reason


def test_a_shard_is_ready_when_a_quorum_consumes_and_every_stream_is_owned() -> None:
    assert ready(shard(*owners())) == ("True", "AllConsuming")
    assert ready(shard(*owners()[:2], unready(owners()[2]))) == ("False", "StreamsNotOwned")
    assert ready(shard(*owners(streams=STREAMS[1:]))) == ("False", "StreamsNotOwned")


def test_a_shard_is_not_ready_before_its_topics_and_tables_are_known_and_stays_ready_when_they_change() -> None:
    def of(state: str, **seen: Any) -> tuple[str, str]:
        known = (TableSeen("db.t", schema_revision=2),) if seen.get("known") else ()
        replicas = [replace(r, aggregator=replace(r.aggregator, tables=known)) for r in owners()]  # type: ignore[type-var]
        topic = TopicStatus(cluster="a", state=seen.get("topic", "AsSpecified"), partitions=seen.get("partitions", 4))
        table = TableStatus(name="db.t", state=state)
        present = shard(*replicas)
        _, conditions = describe_shard(SPEC, present, plan_shard(SPEC, present), (topic,), (table,))
        found = find(conditions, ConditionType.READY)
        assert found is not None
        return found.status, found.reason

    assert of("SchemaChanging") == of("StatusUnknown") == ("False", "Progressing")
    assert of("SchemaChanging", known=True) == of("StatusUnknown", known=True) == ("True", "AllConsuming")
    assert of("AsSpecified", topic="Progressing", partitions=0) == ("False", "Progressing")
    assert of("AsSpecified", topic="Progressing", partitions=4) == ("True", "AllConsuming")
    assert of("SchemaMismatch") == ("True", "AllConsuming"), "what a person has to fix has a condition of its own"


def test_too_few_consuming_replicas_are_reported_with_what_they_do_instead() -> None:
    one = owners()[0]
    broken = replace(unready(owners()[1]), silence="")
    broken = replace(broken, pod=replace(broken.pod, trouble="aggregator: ImagePullBackOff"))  # type: ignore[type-var]
    found = conditions_of(shard(one, broken, replace(owners()[2], pod=None)))["Ready"]
    assert found.reason == "PodsNotReady"
    assert "ImagePullBackOff" in found.message
    silent = [replace(replica, aggregator=None, silence="no answer") for replica in owners()]
    assert ready(shard(*silent)) == ("False", "StatusUnknown")
    assert ready(shard(*owners("REPLAY"))) == ("False", "Replaying")


def test_a_stopped_stream_is_named_with_its_reason() -> None:
    found = conditions_of(shard(*owners("STOPPED", why="OffsetsReset")))["Ready"]
    assert (found.status, found.reason) == ("False", "NotEnoughReplicas")
    one = owners()
    stopped = replace(one[0], aggregator=AggregatorSeen(True, (StreamSeen(STREAMS[0], "STOPPED", why="OffsetsReset"),)))
    found = conditions_of(shard(stopped, *one[1:]))["Ready"]
    assert found.reason == "StreamsStopped"
    assert STREAMS[0] in found.message
    assert "OffsetsReset" in found.message


def test_an_unreachable_kafka_cluster_explains_streams_without_owner() -> None:
    half = tuple(stream for stream in STREAMS if stream.startswith("a/"))
    assert ready(shard(*owners(streams=half), kafka_trouble={"b": "down"})) == ("False", "KafkaUnreachable")


def test_obstacles_stall_and_are_not_called_progress() -> None:
    seen = shard(*(replace(ReplicaSeen(name, "dc-a"), scale=None) for name in NAMES), missing_references=("Secret x",))
    found = conditions_of(seen)
    assert (found["Stalled"].reason, found["Ready"].reason) == ("SecretMissing", "SecretMissing")
    assert "Reconciling" not in found
    assert "Stalled" not in conditions_of(shard(*owners()))


def test_a_running_shard_stays_ready_while_an_obstacle_holds_back_changes() -> None:
    found = conditions_of(shard(*owners(), missing_references=("Secret x",)))
    assert found["Ready"].status == "True"
    assert found["Stalled"].status == "True"


def test_a_stalled_step_is_reported() -> None:
    seen = shard(unready(owners()[0]), *owners()[1:], begun=BegunStep(NAMES[0], 1e6))
    assert conditions_of(seen)["Stalled"].reason == "StepTimedOut"


def test_a_part_that_waits_long_for_its_quorum_is_reported_and_one_of_this_moment_is_not() -> None:
    assert conditions_of(shard(*owners(), quorum_waits={"db.t": 3.0}))["QuorumHealthy"].status == "True"
    found = conditions_of(shard(*owners(), quorum_waits={"db.t": 61.0, "db.u": 3.0}))["QuorumHealthy"]
    assert (found.status, found.reason) == ("False", "QuorumStuck")
    assert "db.t" in found.message
    assert "db.u" not in found.message
    lost = conditions_of(shard(owners()[0], *map(unready, owners()[1:]), quorum_waits={"db.t": 61.0}))["QuorumHealthy"]
    assert lost.reason == "QuorumLost", "bring replicas back first"


def test_a_quorum_that_was_never_there_is_not_lost_and_one_that_was_is() -> None:
    replicas = [unready(replica) for replica in owners()]
    before: tuple[Condition, ...] = ()
    changes = []
    for seen in (
        shard(*replicas),
        shard(owners()[0], *replicas[1:]),
        shard(*replicas, silent_zones=("dc-b",)),
        shard(owners()[0], *replicas[1:]),
        shard(*owners()),
        shard(owners()[0], *replicas[1:]),
        shard(*replicas),
    ):
        found = conditions_of(replace(seen, had_quorum=had_quorum(before)))["QuorumHealthy"]
        changes += list(transitions(before, (found,)))
        before = (found,)

    assert [(change.reason, change.warning) for change in changes] == [("QuorumLost", True)]
    assert "1 replica of ClickHouse ready, the quorum is 2" in changes[0].message


def test_after_zookeeper_was_unavailable_a_quorum_may_have_been_there() -> None:
    seen = shard(*map(unready, owners()), zookeeper_trouble="no answer", had_quorum=False)
    unavailable = conditions_of(seen)["QuorumHealthy"]
    assert (unavailable.status, unavailable.reason) == ("False", "ZooKeeperUnreachable")
    assert had_quorum((unavailable,))


def test_of_one_there_is_one() -> None:
    one = pipeline(("spec.shards", 1)).spec
    found = {each.type: each for each in describe_pipeline(one, PipelineSeen((state(0),)))[1]}
    assert found["Ready"].message == "1 shard is ready"
    two = {each.type: each for each in describe_pipeline(one, PipelineSeen((), ()))[1]}
    assert two["Reconciling"].message == "0 shards are behind the spec"
    few = conditions_of(shard(owners()[0], *map(unready, owners()[1:])))["Ready"]
    assert few.message.startswith("1 replica consumes, ")


def test_hazards_of_tables_and_trouble_of_topics_have_conditions_of_their_own() -> None:
    table = TableSeen("db.t", hazards=(("DeduplicationUnsafe", "window of 3 s"),))
    risky = [replace(r, aggregator=replace(r.aggregator, tables=(table,))) for r in owners()]  # type: ignore[type-var]
    found = conditions_of(shard(*risky), (TopicStatus(cluster="a", state="KafkaUnreachable", message="no answer"),))
    assert found["DeduplicationSafe"].reason == "WindowTooSmall"
    assert (found["TopicsProvisioned"].status, found["TopicsProvisioned"].reason) == ("False", "KafkaUnreachable")
    assert found["Ready"].status == "True", "neither stops what runs"


def test_a_shard_is_drained_when_every_stream_is_owned_and_everything_is_stored() -> None:
    assert drained(STREAMS, shard(*owners(drained=True)))
    assert not drained(STREAMS, shard(*owners(drained=False)))
    assert not drained(STREAMS, shard(*owners(drained=True, streams=STREAMS[1:])))


def test_suspension_is_reported_and_is_no_failure() -> None:
    stopped = [replace(r, aggregator=AggregatorSeen(True, suspended=True)) for r in owners()]
    found = conditions_of(shard(*stopped), suspend=True)
    assert (found["Ready"].reason, found["Suspended"].status) == ("Suspended", "True")
    assert "Reconciling" not in found


# The pipeline, from its shards.

PIPELINE = pipeline(("spec.shards", 2)).spec


def state(number: int, *conditions: Condition, current: bool = True) -> ShardState:
    known = {found.type for found in conditions}
    rest = [
        condition(kind, True, Reason.AS_SPECIFIED)
        for kind in (ConditionType.READY, *ABOUT_SHARDS)
        if kind.value not in known
    ]
    streams = StreamCount(expected=4, owned=4)
    return ShardState(
        number, ClickHouseShardIngestStatus(conditions=(*conditions, *rest), streams=streams), current=current
    )


CLEAN = VerifierStatus(verdict="clean")


def of_pipeline(seen: PipelineSeen) -> dict[str, Condition]:
    return {found.type: found for found in describe_pipeline(PIPELINE, seen)[1]}


def test_a_pipeline_is_ready_when_all_its_shards_are() -> None:
    found = of_pipeline(PipelineSeen((state(0), state(1)), verifier=CLEAN))
    assert all(each.status == "True" for each in found.values()), found
    assert not {"Reconciling", "Stalled"} & found.keys()


def test_a_shard_that_has_not_seen_the_new_spec_is_not_counted_as_ready() -> None:
    found = of_pipeline(PipelineSeen((state(0), state(1, current=False)), verifier=CLEAN))
    assert found["Ready"].status == "False"
    assert found["Reconciling"].reason == "Progressing"


def test_the_worst_shards_are_listed_and_the_worst_state_counts() -> None:
    bad = state(1, condition(ConditionType.READY, False, Reason.PODS_NOT_READY, "why"))
    bad_topic = state(0, condition(ConditionType.TOPICS_PROVISIONED, False, Reason.TOPIC_DRIFT, "two replicas"))
    status, conditions = describe_pipeline(PIPELINE, PipelineSeen((bad_topic, bad), verifier=CLEAN))
    assert [(worst.shard, worst.reason) for worst in status.worst_shards] == [(1, "PodsNotReady")]
    ready = find(conditions, ConditionType.READY)
    assert ready is not None
    assert ready.reason == "ShardsNotReady"
    topics = find(conditions, ConditionType.TOPICS_PROVISIONED)
    assert topics is not None
    assert topics.message == "shard 0: two replicas"


def test_a_pipeline_that_came_second_is_reported_and_counts_nothing() -> None:
    found = of_pipeline(PipelineSeen((), conflict="topic t belongs to x"))
    assert {found["Ready"].reason, found["Stalled"].reason} == {"ClaimConflict"}


def test_shards_that_may_not_be_removed_stall_and_those_that_may_are_drained() -> None:
    seen = PipelineSeen((state(0), state(1)), surplus=(2,), draining="messages", verifier=CLEAN)
    assert of_pipeline(seen)["Stalled"].reason == "RemovalForbidden"
    allowed = pipeline(("spec.shards", 2), ("spec.shardRemovalPolicy", "Drain")).spec
    found = {each.type: each for each in describe_pipeline(allowed, seen)[1]}
    assert found["Reconciling"].reason == "Draining"
    assert "Stalled" not in found


def test_what_the_verifier_reports_is_a_condition_and_never_makes_the_pipeline_unready() -> None:
    for verdict, status, reason in (
        ("anomalies", "False", "AnomaliesFound"),
        ("unknown", "Unknown", "VerifierStarting"),
    ):
        seen = PipelineSeen((state(0), state(1)), verifier=VerifierStatus(verdict=verdict, anomalies=2))  # type: ignore[arg-type]
        found = of_pipeline(seen)
        assert (found["VerifierHealthy"].status, found["VerifierHealthy"].reason) == (status, reason)
        assert found["Ready"].status == "True"
    silent = of_pipeline(PipelineSeen((state(0), state(1)), verifier_silence="no answer"))
    assert silent["VerifierHealthy"].reason == "VerifierUnreachable"


def test_a_transition_time_changes_with_the_status_only() -> None:
    first = merged((), (condition(ConditionType.READY, False, Reason.PROGRESSING),), generation=1, now="t1")
    second = merged(first, (condition(ConditionType.READY, False, Reason.PODS_NOT_READY),), generation=1, now="t2")
    third = merged(second, (condition(ConditionType.READY, True, Reason.ALL_CONSUMING),), generation=2, now="t3")
    assert [found[0].last_transition_time for found in (first, second, third)] == ["t1", "t1", "t3"]
