"""KafkaReassignment: partitions of a Kafka cluster moved by a plan that a person approves, throttled, as its
users write it."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from blockhouse_operator.api.base import Between, Duration, Label, ObjectName, Part, Rule, Size
from blockhouse_operator.api.kafka import KafkaCluster
from blockhouse_operator.api.load import ThrottleLoad
from blockhouse_operator.api.status import Conditions, Count, Message, Name

BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]
BrokerIds = Annotated[tuple[BrokerId, ...], Field(max_length=1000)]
Expressions = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=249)], ...], Field(max_length=100)]
Percent = Annotated[int, Field(ge=1, le=100)]
Rate = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(k|Ki?|Mi?|Gi?)(B|bit)?(/s)?$", max_length=24)]
"""Bytes a second with a unit: `50M`, `64Mi`, `50MB/s`, `10Gbit/s`."""
PlanHash = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", max_length=16)]


class ClusterRef(Part):
    """A Kafka cluster that a BlockAggregator of the same namespace describes."""

    block_aggregator: ObjectName
    """Name of the BlockAggregator."""
    cluster: Label
    """Name of the Kafka cluster in its `spec.kafka.clusters`."""


class TopicChoice(Part):
    """Which topics; expressions match whole names."""

    include: Expressions = ()
    """Only topics that match one of these; all without any."""
    exclude: Expressions = ()
    """Not topics that match one of these."""


class Placement(Part):
    """How replicas are placed; as the options of `blockhouse topics plan`."""

    by: Literal["Count", "Storage"] = "Count"
    """What is evened out (Rebuild, ReplaceBrokers, SetReplication)."""
    optimize: Literal["Distribution", "Storage"] = "Distribution"
    """By storage: spread partners, or pack tightly."""
    forget_current: bool = False
    """Forget where replicas are and place them all again; moves much."""
    sub_affinity: bool = False
    """A new broker takes exactly the slots of one that leaves."""
    optimize_leadership: bool = False
    """Make leaders even over the brokers."""
    min_rack_ids: Annotated[int, Field(ge=0, le=1000)] = 0
    """Racks a set must have before one may be used twice; 0: never twice."""
    size_factor_percent: Annotated[int, Field(ge=1, le=10000)] = 100
    """Head room by storage: 120 plans 20 % more."""
    storage_threshold_percent: Annotated[int, Field(ge=1, le=99)] = 20
    """Rebalance: unload brokers with so much less than the harmonic mean free."""
    partition_limit: Annotated[int, Field(ge=1, le=100000)] = 30
    """Rebalance, Scale: largest partitions of a broker to try."""
    partition_size_threshold: Size = "512Mi"
    """Rebalance, Scale: smallest partition worth moving."""
    rack_local: bool = False
    """Rebalance, Scale: move only within the rack of the source."""


class Execution(Part):
    """How fast partitions are started."""

    in_flight: Annotated[int, Field(ge=1, le=10000)] = 50
    """Partitions that may move at the same time."""
    per_broker: Annotated[int, Field(ge=0, le=10000)] = 0
    """Replicas that may arrive at one broker at the same time; 0: any number."""
    phased: bool = False
    """Two phases: first the new replicas under the old leader, then the plan."""
    deadline: Annotated[Duration, Between("1m", "8760h")] | None = None
    """Start nothing more after so long since the plan was approved; what moves ends."""


Given = TypeVar("Given")


def _by_broker_id(given: dict[str, Given]) -> dict[str, Given]:
    """What is given by broker, if every key is a broker's id. Raises ValueError."""
    strangers = sorted(key for key in given if not key.isdecimal())
    if strangers:
        raise ValueError(f"{', '.join(strangers)}: expected ids of brokers")
    return given


Rates = Annotated[
    dict[str, Rate],
    Field(max_length=1000),
    AfterValidator(_by_broker_id),
]
"""Rates by broker id."""


class ThrottleCapacity(Part):
    """What the network of a broker carries in one direction."""

    default: Rate | None = None
    """Of brokers that are not named: `1250M` or `10Gbit/s`."""
    by_broker: Rates = {}
    """Of brokers by id; before that of their instance type."""
    by_instance_type: Annotated[dict[str, Rate], Field(max_length=100)] = {}
    """Of brokers that are pods, by the label `node.kubernetes.io/instance-type` of their nodes."""


class ThrottleOverride(Part):
    """A fixed rate."""

    rate: Rate
    """The rate, exactly."""
    auto_remove: bool = False
    """It ends when the plan is completed: a later plan of the resource does not have it, unless its rate changes."""
    expires_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", max_length=20)] | None = None
    """Until when, RFC 3339 in UTC."""


class ThrottleOverrides(Part):
    """Fixed rates instead of those that follow the load."""

    everywhere: ThrottleOverride | None = None
    """Of all brokers."""
    brokers: Annotated[dict[str, ThrottleOverride], Field(max_length=1000), AfterValidator(_by_broker_id)] = {}
    """Of brokers by id; before that of all."""


class ReassignmentThrottle(Part):
    """How fast replicas are copied: what clients leave of a broker's capacity."""

    enabled: bool = True
    """Whether copying is throttled."""
    interval: Annotated[Duration, Between("5s", "1h")] = "30s"
    """How often rates are decided."""
    window: Annotated[Duration, Between("5s", "1h")] = "60s"
    """Figures older than two of these count as missing."""
    min_rate: Rate = "10M"
    """Never less, and what a broker gets whose capacity or load is unknown."""
    max_rate: Rate | None = None
    """Never more."""
    max_outbound_percent: Percent = 90
    """Part of the free outbound capacity that copying may use."""
    max_inbound_percent: Percent = 90
    """Part of the free inbound capacity that copying may use."""
    change_threshold_percent: Percent = 10
    """Rates rise only by this much or more."""
    failure_threshold: Annotated[int, Field(ge=0, le=1000)] = 1
    """Intervals without figures of a broker before it gets the minimum."""
    capacity: ThrottleCapacity = ThrottleCapacity()
    """What brokers can carry."""
    load: ThrottleLoad = ThrottleLoad()
    """Where the load of brokers is read."""
    overrides: ThrottleOverrides = ThrottleOverrides()
    """Fixed rates."""
    foreign: Literal["Respect", "Adopt"] = "Respect"
    """What happens to throttles that another tool set: they stay, or become ours."""


class KafkaReassignmentSpec(Part):
    """Move partitions of one Kafka cluster by a plan that is shown first and carried out once it is approved."""

    rules = (
        Rule("has(self.cluster) != has(self.clusterRef)", "give either cluster or clusterRef"),
        Rule(
            "self.operation != 'SetReplication' || has(self.replicationFactor)",
            "SetReplication needs replicationFactor",
        ),
        Rule(
            "self.operation != 'ReplaceBrokers' || (has(self.leaving) && size(self.leaving) > 0)",
            "ReplaceBrokers needs leaving: the brokers that shall hold nothing any more",
        ),
    )

    cluster: KafkaCluster | None = None
    """The Kafka cluster, as in a BlockAggregator."""
    cluster_ref: ClusterRef | None = None
    """The Kafka cluster, by reference to one of a BlockAggregator."""
    operation: Literal["Rebuild", "ReplaceBrokers", "SetReplication", "Rebalance", "Scale", "Leadership"]
    """What is planned."""
    topics: TopicChoice = TopicChoice()
    """Which topics; ReplaceBrokers takes internal ones too unless they are excluded."""
    brokers: BrokerIds = ()
    """Brokers that hold the replicas afterwards; all that are alive without it."""
    leaving: BrokerIds = ()
    """Brokers that hold nothing afterwards; with Leadership: that lead nothing."""
    replication_factor: Annotated[int, Field(ge=1, le=16)] | None = None
    """Copies of each partition afterwards."""
    placement: Placement = Placement()
    """How replicas are placed."""
    execution: Execution = Execution()
    """How fast partitions are started."""
    throttle: ReassignmentThrottle = ReassignmentThrottle()
    """How fast they are copied."""
    approved_plan: PlanHash | None = None
    """Hash of the plan that may be carried out: that of `status.plan.hash`. Nothing moves before."""
    paused: bool = False
    """Start nothing more; what moves ends, throttled."""
    on_delete: Literal["Finish", "Cancel"] = "Finish"
    """What happens to moves when the resource is deleted: they end, or are taken back."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.cluster is None) == (self.cluster_ref is None):
            raise ValueError("give either cluster or clusterRef")
        if self.operation == "SetReplication" and self.replication_factor is None:
            raise ValueError("SetReplication needs replicationFactor")
        if self.operation == "ReplaceBrokers" and not self.leaving:
            raise ValueError("ReplaceBrokers needs leaving: the brokers that shall hold nothing any more")
        return self


class PlanStatus(Part):
    """The plan, frozen. The whole of it is in the ConfigMap."""

    hash: Annotated[str, Field(max_length=16)] = ""
    """What `spec.approvedPlan` has to be."""
    config_map: Name = ""
    """The ConfigMap with the whole plan, which `blockhouse topics apply` reads too."""
    partitions: Count = 0
    """Partitions that change."""
    replicas_moved: Count = 0
    """Replicas that are copied."""
    bytes: Count = 0
    """Bytes that are copied."""
    summary: Message = ""
    """Free space and partners of brokers before and after."""
    notes: Message = ""
    """Warnings of the plan."""


class ProgressStatus(Part):
    """Partitions of the plan by what is left to do, and bytes."""

    done: Count = 0
    """Partitions that are as planned."""
    moving: Count = 0
    """Partitions that move."""
    waiting: Count = 0
    """Partitions that have not begun."""
    skipped: Count = 0
    """Partitions whose topic is gone."""
    moved_bytes: Count = 0
    """Bytes copied."""
    remaining_bytes: Count = 0
    """Bytes left."""
    eta: Annotated[str, Field(max_length=64)] = ""
    """When it will be done at this pace."""


class BrokerThrottle(Part):
    """The throttle of one broker in one role."""

    broker: BrokerId
    """Its id."""
    role: Annotated[str, Field(max_length=16)] = ""
    """source or destination."""
    rate: Annotated[str, Field(max_length=24)] = ""
    """Rate in force."""
    floor: Annotated[str, Field(max_length=24)] = ""
    """Least rate at which its moves end."""
    why: Message = ""
    """What decided it."""


class KafkaReassignmentStatus(Part):
    """State of a reassignment."""

    observed_generation: Count = 0
    """The generation of the spec that this status is about."""
    phase: Annotated[str, Field(max_length=32)] = ""
    """Planning, AwaitingApproval, Queued, Executing, Paused, Completed or Stalled."""
    cluster_id: Name = ""
    """Id of the Kafka cluster."""
    conditions: Conditions = ()
    """Conditions."""
    plan: PlanStatus = PlanStatus()
    """The plan."""
    approved_at: Annotated[str, Field(max_length=64)] = ""
    """When the plan was first seen approved."""
    progress: ProgressStatus = ProgressStatus()
    """How far it is."""
    ended_overrides: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=1001)] = ()
    """Overrides with `autoRemove` that ended with a plan: broker, or everywhere, and rate."""
    throttles: Annotated[tuple[BrokerThrottle, ...], Field(max_length=200)] = ()
    """Throttles in force; of many brokers, the slowest."""
