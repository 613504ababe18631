"""What is reported about a shard: one small function for each condition, each for itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blockhouse_operator.api.conditions import Condition, ConditionType, Reason, condition, find
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.api.status import ClickHouseShardIngestStatus
from blockhouse_operator.decide.deferred import DEFERRED, RestartDeferred
from blockhouse_operator.decide.rebuild import BeginRebuild, EndRebuild, ReplaceVolume, RestoreReplica
from blockhouse_operator.decide.removal import DeleteReplica, Drain, Unregister
from blockhouse_operator.decide.seen import ShardSeen, State, TableSeen
from blockhouse_operator.decide.steps import Step
from blockhouse_operator.decide.words import counted

HAZARD_REASONS = {  # what an aggregator calls them
    "ProvenanceMissing": Reason.PROVENANCE_MISSING,
    "TopicNotNamed": Reason.TOPIC_NOT_NAMED,
    "DeduplicationUnsafe": Reason.WINDOW_TOO_SMALL,
}

PAUSED = "spec.paused is true: nothing is written but the status"
QUORUM_MOMENTS = 60.0
"""Seconds after which a part that waits for its quorum is stuck: a fetch that is tried again takes some."""


def reason_of(word: str) -> Reason:
    """The reason of that word, as read back from a status."""
    return next((reason for reason in Reason if reason.value == word), Reason.STATUS_UNKNOWN)


def shard_conditions(
    spec: ClickHouseShardIngestSpec,
    seen: ShardSeen,
    deferred: Sequence[RestartDeferred],
    steps: Sequence[Step],
    status: ClickHouseShardIngestStatus,
) -> tuple[Condition, ...]:
    """In a fixed order; Reconciling, Stalled, Suspended and Paused only while they are true."""
    return tuple(
        found
        for found in (
            ready(spec, seen, status),
            reconciling(spec, seen, deferred, steps, status),
            stalled(seen, deferred),
            pods_up_to_date(seen, deferred),
            not_compared(ConditionType.TOPICS_PROVISIONED) if seen.paused else topics_provisioned(status),
            not_compared(ConditionType.SCHEMA_UP_TO_DATE) if seen.paused else schema_up_to_date(status),
            deduplication_safe(spec, seen),
            quorum_healthy(spec, seen),
            suspended(spec),
            paused(seen),
        )
        if found is not None
    )


def ready(spec: ClickHouseShardIngestSpec, seen: ShardSeen, status: ClickHouseShardIngestStatus) -> Condition:
    kind, streams = ConditionType.READY, status.streams
    if spec.stop:
        return condition(kind, False, Reason.SHUT_DOWN, "spec.stop is true: nothing is loaded, and no query answered")
    if spec.suspend:
        return condition(kind, False, Reason.SUSPENDED, "spec.suspend is true: nothing is loaded")
    if (blocked := next(_obstacles(seen), None)) and status.ready_replicas < spec.quorum:
        return condition(kind, False, *blocked)
    if status.ready_replicas < spec.quorum:
        reason, shown = why_unready(status)
        consuming = counted(status.ready_replicas, "replica consumes", "replicas consume")
        return condition(kind, False, reason, f"{consuming}, the quorum is {spec.quorum}: {shown}")
    if streams.stopped:
        return condition(kind, False, Reason.STREAMS_STOPPED, _stopped(seen))
    if streams.owned < streams.expected:
        return condition(kind, False, *_unowned(seen, streams.expected - streams.owned))
    if waits := next(_unknown_yet(seen, status), ""):
        return condition(kind, False, Reason.PROGRESSING, waits)
    return condition(kind, True, Reason.ALL_CONSUMING, f"{streams.owned} streams are owned")


def _unknown_yet(seen: ShardSeen, status: ClickHouseShardIngestStatus) -> Iterator[str]:
    """Topics and tables of which nothing is known yet: a client that waits for Ready produces to them next.

    One that was there once makes no shard unready: that it changes, or is unheard of, is reported by its own condition.
    """
    for topic in status.topics:
        if topic.state == Reason.PROGRESSING.value and not topic.partitions:
            yield f"its topic in Kafka cluster {topic.cluster}: {topic.message}"
    answers = [replica.aggregator for replica in seen.replicas if replica.aggregator is not None]
    known = {table.name for answer in answers for table in answer.tables if table.schema_revision}
    known |= {name for zone in seen.elsewhere for name, ats in zone.tables.items() if any(at.revision for at in ats)}
    for table in status.tables:
        if table.state in (Reason.SCHEMA_CHANGING.value, Reason.STATUS_UNKNOWN.value) and table.name not in known:
            yield f"table {table.name}: {table.message or 'nothing is known of it yet'}"


def why_unready(status: ClickHouseShardIngestStatus) -> tuple[Reason, str]:
    """The most important trouble of a shard's replicas, for when too few consume."""
    troubled = [replica for replica in status.replicas if replica.state not in (State.CONSUMING, State.SUSPENDED)]
    shown = "; ".join(f"{r.name} is {r.state}{f' ({r.message})' if r.message else ''}" for r in troubled[:4])
    states = {replica.state for replica in troubled}
    if states and states <= {State.UNREACHABLE}:
        return Reason.STATUS_UNKNOWN, shown
    if states & {State.PENDING, State.MISSING}:
        return Reason.PODS_NOT_READY, shown
    if states and states <= {State.REPLAYING, State.STARTING}:
        return Reason.REPLAYING, shown
    return Reason.NOT_ENOUGH_REPLICAS, shown


def _unowned(seen: ShardSeen, count: int) -> tuple[Reason, str]:
    streams = f"{counted(count, 'stream is', 'streams are')} owned by no replica"
    if seen.kafka_trouble:
        cluster, trouble = next(iter(sorted(seen.kafka_trouble.items())))
        return Reason.KAFKA_UNREACHABLE, f"{streams}; Kafka cluster {cluster}: {trouble}"
    if seen.silent_zones:
        zones = ", ".join(seen.silent_zones)
        return Reason.STATUS_UNKNOWN, f"{streams} of this zone; {zones} is not heard of"
    return Reason.STREAMS_NOT_OWNED, streams


def _stopped(seen: ShardSeen) -> str:
    stopped = sorted(s.name for s in seen.streams().values() if s.phase == "STOPPED")
    first = seen.streams()[stopped[0]]
    more = f" and {len(stopped) - 1} more" if len(stopped) > 1 else ""
    return f"stream {first.name}{more} waits for a decision: {first.why}; see 'blockhouse streams list'"


def _obstacles(seen: ShardSeen) -> Iterator[tuple[Reason, str]]:
    """What only a person can take out of the way."""
    for refused in seen.refused:
        yield Reason.FORBIDDEN, refused
    for taken in seen.taken:
        yield Reason.NAME_TAKEN, taken
    if seen.missing_references:
        missing = "; ".join(seen.missing_references[:5])
        yield Reason.SECRET_MISSING, f"{missing}; it continues by itself once they exist"


def reconciling(
    spec: ClickHouseShardIngestSpec,
    seen: ShardSeen,
    deferred: Sequence[RestartDeferred],
    steps: Sequence[Step],
    status: ClickHouseShardIngestStatus,
) -> Condition | None:
    kind = ConditionType.RECONCILING
    if any(_obstacles(seen)) or any(step.stalled for step in deferred):
        return None
    for step in steps:
        scaling = isinstance(step, (Drain, Unregister, DeleteReplica))
        rebuilding = isinstance(step, (BeginRebuild, ReplaceVolume, RestoreReplica, EndRebuild))
        reason = Reason.REBUILDING if rebuilding else Reason.SCALING if scaling else Reason.ROLLING_OUT
        return condition(kind, True, reason, f"{type(step).__name__} {step.replica}: {step.why}")
    for other in deferred:
        if other.reason not in DEFERRED:
            return condition(kind, True, other.reason, other.why)
    if spec.stop:
        left = [r.name for r in status.replicas if r.served and r.state not in (State.MISSING, State.PENDING)]
        message = f"{', '.join(left[:4])} will end"
        return condition(kind, True, Reason.SHUT_DOWN, message) if left else None
    if spec.suspend and (left := [r.name for r in status.replicas if r.served and r.state == State.CONSUMING]):
        return condition(kind, True, Reason.SUSPENDED, f"{', '.join(left[:4])} will stop loading")
    unready = [r.name for r in status.replicas if r.served and not r.ready]
    if unready:
        return condition(kind, True, Reason.PROGRESSING, f"waiting for the pods of {', '.join(unready[:4])}")
    return None


def stalled(seen: ShardSeen, deferred: Sequence[RestartDeferred]) -> Condition | None:
    for reason, message in _obstacles(seen):
        return condition(ConditionType.STALLED, True, reason, message)
    for step in deferred:
        if step.stalled:
            return condition(ConditionType.STALLED, True, step.reason, step.why)
    for message in seen.too_large:
        return condition(ConditionType.STALLED, True, Reason.CANNOT_SHRINK, message)
    return None


def pods_up_to_date(seen: ShardSeen, deferred: Sequence[RestartDeferred]) -> Condition:
    """Of the replicas that this operator serves."""
    kind = ConditionType.PODS_UP_TO_DATE
    behind = [replica.name for replica in seen.replicas if replica.outdated or replica.restart_due]
    if not behind:
        return condition(kind, True, Reason.AS_SPECIFIED)
    for step in deferred:
        if step.reason in DEFERRED or step.stalled:
            return condition(kind, False, step.reason, step.why)
    replicas = counted(len(behind), "replica is", "replicas are")
    return condition(kind, False, Reason.ROLLING_OUT, f"{replicas} to restart: {', '.join(behind[:4])}")


def topics_provisioned(status: ClickHouseShardIngestStatus) -> Condition:
    kind = ConditionType.TOPICS_PROVISIONED
    wrong = [topic for topic in status.topics if topic.state != Reason.AS_SPECIFIED.value]
    if not wrong:
        return condition(kind, True, Reason.AS_SPECIFIED)
    message = "; ".join(
        topic.message if topic.cluster in topic.message else f"Kafka cluster {topic.cluster}: {topic.message}"
        for topic in wrong
    )
    return condition(kind, False, reason_of(wrong[0].state), message[:2000])


def schema_up_to_date(status: ClickHouseShardIngestStatus) -> Condition:
    """What needs a person is reported before what continues by itself, and that before what is not known."""
    kind = ConditionType.SCHEMA_UP_TO_DATE
    wrong = [table for table in status.tables if table.state != Reason.AS_SPECIFIED.value]
    if not wrong:
        return condition(kind, True, Reason.AS_SPECIFIED)
    order = (Reason.STATUS_UNKNOWN.value, Reason.SCHEMA_CHANGING.value)
    worst = max(wrong, key=lambda table: order.index(table.state) if table.state in order else len(order))
    more = f" (and {counted(len(wrong) - 1, 'more table', 'more tables')})" if len(wrong) > 1 else ""
    known = False if worst.state != Reason.STATUS_UNKNOWN.value else None
    return condition(kind, known, reason_of(worst.state), f"table {worst.name}: {worst.message}{more}"[:2000])


def deduplication_safe(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> Condition:
    kind = ConditionType.DEDUPLICATION_SAFE
    tables = _tables(seen)
    if tables is None:
        if spec.suspend or spec.stop:
            return condition(kind, None, Reason.SHUT_DOWN if spec.stop else Reason.SUSPENDED, "nothing is loaded")
        return condition(kind, None, Reason.STATUS_UNKNOWN, "no aggregator of the shard answers")
    for name, found in tables.items():
        for reason, text in found.hazards:
            known = HAZARD_REASONS.get(reason, Reason.HAZARDOUS_TABLE)
            return condition(kind, False, known, f"table {name}: {text}"[:2000])
    return condition(kind, True, Reason.AS_SPECIFIED)


def _tables(seen: ShardSeen) -> dict[str, TableSeen] | None:
    """The worst that any aggregator reports of each table, by name; None when none answers."""
    answers = [replica.aggregator for replica in seen.replicas if replica.aggregator is not None]
    if not answers:
        return None
    found: dict[str, TableSeen] = {}
    for answer in answers:
        for table in answer.tables:
            if table.name not in found or table.why or table.unavailable or table.hazards:
                found[table.name] = table
    return dict(sorted(found.items()))


def quorum_healthy(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> Condition:
    kind = ConditionType.QUORUM_HEALTHY
    if seen.zookeeper_trouble:
        return condition(kind, False, Reason.ZOOKEEPER_UNREACHABLE, seen.zookeeper_trouble)
    alive = [r.name for r in seen.replicas if r.pod is not None and r.pod.ready]
    down = (State.MISSING, State.PENDING, State.DRAINING)
    alive += [name for report in seen.elsewhere for name, state in report.states.items() if state not in down]
    if len(alive) >= spec.quorum:
        return _quorum_moves(seen)
    if spec.stop:
        return condition(kind, None, Reason.SHUT_DOWN, "spec.stop is true: nothing is inserted")
    message = f"{counted(len(alive), 'replica', 'replicas')} of ClickHouse ready, the quorum is {spec.quorum}"
    if not seen.had_quorum:
        return condition(kind, None, Reason.PROGRESSING, f"{message}: there was none yet that could be lost")
    if seen.silent_zones:
        return condition(kind, None, Reason.STATUS_UNKNOWN, f"{', '.join(seen.silent_zones)} is not heard of")
    return condition(kind, False, Reason.QUORUM_LOST, message)


def had_quorum(before: Sequence[Condition]) -> bool:
    """Whether the shard may have had a quorum once, by its condition before; in doubt it had."""
    reported = find(before, ConditionType.QUORUM_HEALTHY)
    without = (Reason.PROGRESSING.value, Reason.SHUT_DOWN.value)
    return reported is not None and not (reported.status == "Unknown" and reported.reason in without)


def _quorum_moves(seen: ShardSeen) -> Condition:
    """Of a shard with enough replicas: an insert has its quorum within moments, unless something keeps it from that."""
    stuck = {table: waits for table, waits in sorted(seen.quorum_waits.items()) if waits > QUORUM_MOMENTS}
    if not stuck:
        return condition(ConditionType.QUORUM_HEALTHY, True, Reason.AS_SPECIFIED)
    shown = ", ".join(list(stuck)[:4])
    return condition(
        ConditionType.QUORUM_HEALTHY,
        False,
        Reason.QUORUM_STUCK,
        f"a part of {shown} waits for its quorum for more than {QUORUM_MOMENTS:.0f} s, and no other block is stored; "
        "see 'blockhouse quorum inspect'",
    )


def not_compared(kind: ConditionType) -> Condition:
    """Of what is compared only when it is also repaired."""
    return condition(kind, None, Reason.PAUSED, "it is not compared while spec.paused is true")


def paused(seen: ShardSeen) -> Condition | None:
    return condition(ConditionType.PAUSED, True, Reason.PAUSED, PAUSED) if seen.paused else None


def suspended(spec: ClickHouseShardIngestSpec) -> Condition | None:
    if not (spec.suspend or spec.stop):
        return None
    reason = Reason.SHUT_DOWN if spec.stop else Reason.SUSPENDED
    return condition(ConditionType.SUSPENDED, True, reason, "nothing is lost: Kafka keeps the messages")
