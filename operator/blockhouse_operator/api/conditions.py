"""Conditions: what a GitOps tool waits for and what an on-call engineer reads first.

Every reason has one line here and one page in `docs/runbook.md`. `Ready`, `Reconciling` and `Stalled` follow kstatus:
Reconciling and Stalled are only there while true.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field

from blockhouse.errors import Retryable
from blockhouse_operator.api.base import Part


class ConditionType(StrEnum):
    """What a condition is about."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    READY = (
        "Ready",
        "In every shard at least quorum replicas consume and all streams are owned; of a mirror: it runs, and no "
        "partition stands still.",
    )
    RECONCILING = "Reconciling", "The operator is still bringing the cluster to the spec."
    STALLED = "Stalled", "The operator cannot continue until a person changes something."
    TOPICS_PROVISIONED = "TopicsProvisioned", "Every topic of every Kafka cluster is as in the spec."
    PODS_UP_TO_DATE = (
        "PodsUpToDate",
        "Every pod was created from the present spec, and no restart is due; while it is false, its reason is what it "
        "waits for.",
    )
    SCHEMA_UP_TO_DATE = "SchemaUpToDate", "Every table has the columns of the spec on every replica."
    DEDUPLICATION_SAFE = "DeduplicationSafe", "Every table keeps its block hashes long enough and has provenance."
    QUORUM_HEALTHY = "QuorumHealthy", "In every shard inserts can reach their quorum."
    USERS_PUBLISHED = (
        "UsersPublished",
        "Every ClickHouse user of the spec has a password, and so is on the servers.",
    )
    FILES_PUBLISHED = (
        "FilesPublished",
        "Every configuration file of ClickHouse in the spec is where the servers read it, or will when they restart.",
    )
    VERIFIER_HEALTHY = "VerifierHealthy", "The verifier runs and has found nothing lost or doubled."
    SUSPENDED = "Suspended", "Loading, or mirroring, was switched off by spec.suspend or spec.stop."
    PAUSED = "Paused", "Reconciliation is paused by spec.paused: nothing of the pipeline is written but its status."
    PLAN_READY = "PlanReady", "A plan is frozen and shown in the status; its hash can be approved."
    APPROVED = "Approved", "spec.approvedPlan is the hash of the plan."
    EXECUTING = "Executing", "Partitions are moved by the plan."
    COMPLETED = "Completed", "Every partition of the plan is where it should be, and no throttle is left."
    THROTTLE_STALLED = "ThrottleStalled", "A partition is written faster than it may be copied: its move does not end."
    CAPACITY_UNKNOWN = "CapacityUnknown", "The capacity of a broker that takes part is unknown, so it gets the minimum."
    MIRRORING = "Mirroring", "Every partition of the mirrored topics is mirrored by a task."
    TOPICS_IN_SYNC = "TopicsInSync", "Topics of the target have the partitions and settings of the source's."
    LOAD_KNOWN = "LoadKnown", "The load of the source was measured lately, so tasks follow it."
    BALANCED = "Balanced", "No task of the mirror has much more load than the mean."
    WITHIN_LATENCY = "WithinLatency", "No partition that is mirrored is later than spec.rebalance.onLag."
    DEAD_LETTERS = "DeadLetters", "Since the driver began the target refused records, which are dead letters now."
    OFFENDING = "Offending", "A partition is more than one task can carry, or is late whatever the assignment."


NORMALLY_FALSE = frozenset(
    {
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.SUSPENDED,
        ConditionType.PAUSED,
        ConditionType.EXECUTING,
        ConditionType.THROTTLE_STALLED,
        ConditionType.CAPACITY_UNKNOWN,
        ConditionType.DEAD_LETTERS,
        ConditionType.OFFENDING,
    }
)
"""Conditions that are false, or not there, when all is well and nothing is changed; all others are true then."""


class Reason(StrEnum):
    """Why a condition is as it is. Stable: people alert on them."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    # all is well
    ALL_CONSUMING = "AllConsuming", "All streams are owned and enough replicas of every shard consume."
    AS_SPECIFIED = "AsSpecified", "What was found is what the spec asks for."
    NO_ANOMALIES = "NoAnomalies", "The verifier saw every commit follow the one before it."
    DISABLED = "Disabled", "This part is switched off in the spec."

    # on the way
    PROGRESSING = "Progressing", "Pods, topics or tables are being created."
    ROLLING_OUT = "RollingOut", "Replicas are restarted one after the other to take a change."
    SCALING = "Scaling", "Replicas or shards are being added or removed."
    DRAINING = "Draining", "A replica or shard to be removed still has something to finish."
    REBUILDING = "Rebuilding", "A replica whose volume was empty, lost or forgotten is cloned from others."
    REPLAYING = "Replaying", "Blocks left by a former owner are being sent again."
    ABORTED = "Aborted", "spec.rollout.abort abandoned a change of tables."
    STARTING = "Starting", "The pod of the mirror has begun, and its driver looks for topics."
    WAITING = "Waiting", "Partitions of a mirror wait for what passes by itself; the message has an example."
    PAUSED = "Paused", "spec.paused, or spec.rollout.paused, holds back changes."
    OUTSIDE_WINDOW = (
        "OutsideWindow",
        "Restarts wait for the next of spec.rollout.windows; the message has when it begins.",
    )
    SUSPENDED = "Suspended", "spec.suspend is true."
    SHUT_DOWN = "ShutDown", "spec.stop is true."
    DELETING = "Deleting", "The resource is being deleted."

    # a person has to change something
    INVALID_SPEC = "InvalidSpec", "The spec cannot be used; the message names the field."
    SECRET_MISSING = "SecretMissing", "A Secret or ConfigMap, or a key in it, that the spec refers to does not exist."
    INVALID_FILE = "InvalidFile", "A configuration file of ClickHouse cannot be used; the one of before stays."
    CLAIM_CONFLICT = (
        "ClaimConflict",
        "An older pipeline already has this topic, group or ZooKeeper subtree, or an older mirror this group.",
    )
    CLAIMS_UNKNOWN = (
        "ClaimsUnknown",
        "A namespace cannot be read, where an older resource may have this topic, group or ZooKeeper subtree.",
    )
    NAME_TAKEN = "NameTaken", "An object of the needed name belongs to another owner."
    REMOVAL_FORBIDDEN = "RemovalForbidden", "Shards would be removed, which the spec does not allow."
    DATA_NOT_ELSEWHERE = "DataNotElsewhere", "A replica needs a new volume, and its data is not proven to be on others."
    CANNOT_SHRINK = "CannotShrink", "A volume is larger than in the spec."
    STEP_TIMED_OUT = "StepTimedOut", "A step of the rollout took longer than spec.rollout.stepTimeout."
    POD_NOT_ENDING = (
        "PodNotEnding",
        "A pod that is to end does not, as on a dead node; the message has what to do.",
    )
    FORBIDDEN = "Forbidden", "The API server does not let the operator do what it has to."

    # not enough of it works
    NOT_ENOUGH_REPLICAS = "NotEnoughReplicas", "A shard has fewer consuming replicas than its quorum."
    STREAMS_NOT_OWNED = "StreamsNotOwned", "Streams of a shard are owned by no replica."
    STREAMS_STOPPED = "StreamsStopped", "A stream was stopped and waits for a decision; the message has the command."
    PODS_NOT_READY = "PodsNotReady", "Pods do not start or do not become ready."
    STATUS_UNKNOWN = (
        "StatusUnknown",
        "An aggregator does not answer, or could not compare a table with its ClickHouse yet.",
    )
    SHARDS_NOT_READY = "ShardsNotReady", "At least one shard is not ready; the status lists the worst."

    # Kafka
    KAFKA_UNREACHABLE = "KafkaUnreachable", "A Kafka cluster cannot be reached; the others continue."
    QUOTA_EXCEEDED = "QuotaExceeded", "A quota of the user in Kafka holds requests back; the message names both."
    TOPIC_DRIFT = "TopicDrift", "A topic differs from the spec in a way that is not repaired by itself."
    TOPIC_COMPACTED = "TopicCompacted", "A topic is compacted, so it cannot be loaded exactly once."
    TOPIC_FAILED = "TopicFailed", "A Kafka cluster refused to create or change a topic."

    # ClickHouse and ZooKeeper
    ZOOKEEPER_UNREACHABLE = "ZooKeeperUnreachable", "A ZooKeeper ensemble cannot be reached."
    QUORUM_STUCK = "QuorumStuck", "A part waits for its quorum and no other insert can proceed."
    QUORUM_LOST = "QuorumLost", "Fewer replicas of a shard are alive than its quorum."
    TABLE_MISSING = "TableMissing", "A table of the spec does not exist on a replica."
    SCHEMA_MISMATCH = "SchemaMismatch", "A table's columns differ from the spec in a way that only people can fix."
    SCHEMA_CHANGING = "SchemaChanging", "Columns are being added, shard by shard."
    TABLE_BLOCKED = "TableBlocked", "A table is not loaded until a person decides; the message states why."
    WINDOW_TOO_SMALL = "WindowTooSmall", "A table's deduplication window is shorter than an outage it should survive."
    PROVENANCE_MISSING = "ProvenanceMissing", "A table has no provenance columns, so equal blocks would be merged."
    TOPIC_NOT_NAMED = "TopicNotNamed", "A table has no column _kafka_topic: rows do not show of which topic they are."
    HAZARDOUS_TABLE = "HazardousTable", "A table can lose or double rows for another reason, such as a view on it."

    # reassignments
    PLAN_FROZEN = "PlanFrozen", "The plan is frozen; status.plan has its hash."
    PLAN_FAILED = "PlanFailed", "No plan can be computed from the spec; the message states why."
    NOTHING_TO_DO = "NothingToDo", "The plan changes no partition."
    AWAITING_APPROVAL = "AwaitingApproval", "spec.approvedPlan is not set."
    OTHER_PLAN_APPROVED = "OtherPlanApproved", "spec.approvedPlan is the hash of another plan than the present one."
    APPROVED = "Approved", "spec.approvedPlan is the hash of the plan."
    QUEUED = "Queued", "Another reassignment of the same Kafka cluster goes first."
    MOVING = "Moving", "Partitions are being moved."
    FOREIGN_REASSIGNMENT = "ForeignReassignment", "Something else moves partitions of the plan; it is waited for."
    BROKER_NOT_ALIVE = "BrokerNotAlive", "A broker that partitions go to is not alive; the others are moved."
    DEADLINE_EXCEEDED = "DeadlineExceeded", "spec.execution.deadline has passed; nothing more is started."
    REASSIGNMENT_REFUSED = "ReassignmentRefused", "Kafka refused to move a partition or to set a throttle."
    THROTTLE_TOO_LOW = "ThrottleTooLow", "The message has the rate that is needed and the rate that is possible."
    RATES_FOLLOW_LOAD = "RatesFollowLoad", "Every broker that takes part has a rate at which its moves end."
    CAPACITY_NOT_GIVEN = "CapacityNotGiven", "spec.throttle.capacity has no entry for a broker that takes part."
    CAPACITY_GIVEN = "CapacityGiven", "The capacity of every broker that takes part is known."
    ALL_MOVED = "AllMoved", "Every partition of the plan is where it should be."

    # mirrors
    ALL_MIRRORED = "AllMirrored", "Every partition is mirrored by a task."
    PARTITIONS_STOPPED = "PartitionsStopped", "Partitions stand still until a person decides; status.stopped has why."
    MIRROR_UNREACHABLE = "MirrorUnreachable", "The mirror's pod is ready, and its driver does not answer the operator."
    MIRROR_FAILING = "MirrorFailing", "Something that the mirror does fails and is tried again; the message has what."
    LOAD_MEASURED = "LoadMeasured", "The newest sample of load is young."
    LOAD_NOT_MEASURED = "LoadNotMeasured", "No sample of load, or an old one: partitions weigh what was last known."
    TASKS_EVEN = "TasksEven", "No task is further above the mean than spec.load.tolerance."
    TASKS_UNEVEN = "TasksUneven", "A task is further above the mean than spec.load.tolerance: partitions will move."
    IN_TIME = "InTime", "No partition is later than spec.rebalance.onLag."
    LATE = "Late", "A partition is later than spec.rebalance.onLag; status.lag has how late."
    RECORDS_REFUSED = "RecordsRefused", "The message has the first partition; the letters state why."
    NONE_REFUSED = "NoneRefused", "Since the driver began the target took every record."
    PARTITION_TOO_HEAVY = "PartitionTooHeavy", "status.offending names the partitions, with advice."
    NONE_OFFENDING = "NoneOffending", "An assignment helps every partition."

    # verifier
    ANOMALIES_FOUND = "AnomaliesFound", "The verifier found commits that can mean lost or doubled rows."
    VERIFIER_UNREACHABLE = "VerifierUnreachable", "The verifier does not answer."
    VERIFIER_STARTING = "VerifierStarting", "The verifier has not seen enough to judge."


State = Literal["True", "False", "Unknown"]


class Condition(Part):
    """One condition, as all of Kubernetes has them."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What it is about."""
    status: State
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Why, in one word; `docs/runbook.md` has a page for each."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, in full."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the spec it is about."""
    last_transition_time: Annotated[str, Field(max_length=64)] = ""
    """When `status` changed last, RFC 3339."""


def reason_of_silence(error: Retryable) -> Reason:
    """Why a Kafka cluster does not answer."""
    held_back = error.reason == Reason.QUOTA_EXCEEDED.value
    return Reason.QUOTA_EXCEEDED if held_back else Reason.KAFKA_UNREACHABLE


def condition(kind: ConditionType, status: bool | None, reason: Reason, message: str = "") -> Condition:
    """A condition of this moment, without time and generation. `None` is Unknown."""
    state: State = "Unknown" if status is None else "True" if status else "False"
    return Condition(type=kind.value, status=state, reason=reason.value, message=message)


def merged(
    before: Iterable[Condition], present: Iterable[Condition], *, generation: int, now: str
) -> tuple[Condition, ...]:
    """The conditions to write: `now` (RFC 3339) becomes the transition time of those whose status changed.

    A condition that is not among `present` is gone (kstatus: Reconciling and Stalled exist only while true).
    """
    known = {condition.type: condition for condition in before}
    result = []
    for new in present:
        old = known.get(new.type)
        since = old.last_transition_time if old is not None and old.status == new.status else now
        result.append(new.model_copy(update={"last_transition_time": since, "observed_generation": generation}))
    return tuple(result)


def find(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """The condition of a type."""
    return next((condition for condition in conditions if condition.type == kind.value), None)
