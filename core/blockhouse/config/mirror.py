"""Settings of a mirror between two Kafka clusters: the documented YAML file, validated at once (`docs/mirror.md`)."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from blockhouse.balance.quiet import QuietHours
from blockhouse.config.base import Settings
from blockhouse.config.endpoints import NAME, KafkaCluster
from blockhouse.config.pipeline import DAY, LOOPBACK, MAX_TOPIC, Admin, Gate, Spark
from blockhouse.config.units import Duration, Fraction, Size

KIBI = 1 << 10
MEBI = 1 << 20
GROUPS = "km-"
"""What the groups of mirrors begin with."""
POD_SETTINGS = ("spark.kubernetes.container.image", "spark.executor.instances")
"""What Spark has no default for when its executors are pods, and what the number of slots follows from."""
NO_EXACTLY_ONCE = "ExactlyOnce is not there yet: take EffectivelyOnce, which doubles nothing after a crash"


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


def _quiet_hours(text: str) -> str:
    QuietHours.parse(text)
    return text


Expression = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_expression)]
"""A regular expression that has to match a whole name of a topic."""
TopicSetting = Annotated[str, Field(min_length=1, max_length=249)]
"""Name of a setting of a topic."""
Hours = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_quiet_hours)]
"""Times of day, as `02:00-05:00 UTC`."""


class Rename(Settings):
    """What a topic is called on the target."""

    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$", max_length=100)
    """Put before the name."""
    suffix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$", max_length=100)
    """Put after the name."""

    def target_of(self, topic: str) -> str:
        """The name on the target of a topic of the source."""
        return f"{self.prefix}{topic}{self.suffix}"


class Topics(Settings):
    """Which topics are mirrored. Names that begin with two underscores are Kafka's own and never are."""

    include: tuple[Expression, ...] = Field(default=(), max_length=1000)
    """Names that are mirrored; none: all."""
    exclude: tuple[Expression, ...] = Field(default=(), max_length=1000)
    """Of these, names that are not."""
    rename: Rename = Rename()
    """What they are called on the target; without it the same."""

    def matches(self, topic: str) -> bool:
        """Whether a topic of the source is mirrored."""
        if topic.startswith("__") or any(re.fullmatch(e, topic) for e in self.exclude):
            return False
        return not self.include or any(re.fullmatch(e, topic) for e in self.include)


class TargetTopics(Settings):
    """How topics are created, grown and kept like those of the source."""

    replication_factor: int = Field(default=-1, ge=-1, le=16)
    """Of topics that have to be created; -1: the default of the target's brokers."""
    sync: tuple[TopicSetting, ...] = Field(
        default=("retention.ms", "retention.bytes", "cleanup.policy", "compression.type", "max.message.bytes"),
        max_length=64,
    )
    """Settings that are copied from the source's topic. `message.timestamp.type` never is."""
    interval: Duration = Field(default=30, ge=1, le=DAY)
    """How often topics, partitions and settings are compared."""

    @model_validator(mode="after")
    def _no_timestamp_type(self) -> TargetTopics:
        if "message.timestamp.type" in self.sync:
            raise ValueError("message.timestamp.type cannot be copied: it would replace the timestamps of the source")
        return self


class Load(Settings):
    """From what the number of tasks and the weight of a partition follow."""

    window: Duration = Field(default=3 * 3600, ge=10, le=7 * DAY)
    """The part of the history that counts."""
    history: Literal["Memory", "Topic"] = "Memory"
    """Where measured load is kept: in the driver, or also in the compacted topic `km-NAME-load` on the target, with
    which the next driver begins."""
    default: Size = Field(default=50 * KIBI, ge=1, le=1 << 40)
    """Bytes/s of a partition of which nothing is known."""
    interval: Duration = Field(default=30, ge=1, le=3600)
    """How often load is read."""
    capacity: Size = Field(default=10 * MEBI, ge=1, le=1 << 40)
    """Bytes/s that one task can mirror."""
    utilization: Fraction = Field(default=0.7, ge=0.01, le=1)
    """The part of it that is planned."""
    max_partitions: int = Field(default=500, ge=1, le=100_000)
    """Partitions of one task, at most."""
    min_tasks: int = Field(default=1, ge=1, le=1000)
    """Tasks, at least."""
    max_tasks: int = Field(default=32, ge=1, le=1000)
    """Tasks, at most; Spark's slots limit them too."""
    tolerance: Fraction = Field(default=0.1, ge=0.01, le=1)
    """How far above the mean a task may be. A rebalance makes tasks even to half of it: the rest is for what drifts
    until the next one."""

    @model_validator(mode="after")
    def _bounds(self) -> Load:
        if self.min_tasks > self.max_tasks:
            raise ValueError(f"minTasks {self.min_tasks} is above maxTasks {self.max_tasks}")
        return self


class Rebalance(Settings):
    """When partitions of a running mirror move."""

    on_lag: Duration = Field(default=60, ge=1, le=DAY)
    """A partition that is later than this twice in a row moves, if that helps."""
    cooldown: Duration = Field(default=900, ge=0, le=DAY)
    """How long nothing moves after a move, new and ended partitions and another number of tasks apart."""
    quiet_hours: tuple[Hours, ...] = Field(default=(), max_length=24)
    """When tasks are evened out, as `02:00-05:00 UTC`."""
    max_moved: Fraction = Field(default=0.02, ge=0, le=1)
    """The part of the partitions that may move in quiet hours at once, rounded up to a whole one."""


class DeadLetters(Settings):
    """Where records go that the target refuses, with `onRefused: DeadLetter`."""

    topic: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$", max_length=MAX_TOPIC)
    """Of the target; it is created if it is missing. Empty: `km-NAME-dead-letters`."""


class MirrorSpark(Spark):
    """The Spark application of one mirror."""

    master: str = Field(default="local[4]", min_length=1, max_length=256)
    """Where tasks run; each takes a slot."""

    @model_validator(mode="after")
    def _pods_are_described(self) -> MirrorSpark:
        missing = [key for key in POD_SETTINGS if key not in self.conf] if self.in_pods else []
        if missing:
            raise ValueError(f"a master k8s:// starts executors as pods, for which conf needs {' and '.join(missing)}")
        return self


class MirrorConfig(Settings):
    """One mirror: topics of one cluster to another one."""

    name: str = Field(pattern=NAME)
    """Part of the consumer group `km-NAME` on the target that keeps its positions. Never change it."""
    source: KafkaCluster
    """The cluster that is read."""
    target: KafkaCluster
    """The cluster that is written."""
    topics: Topics = Topics()
    """Which topics."""
    target_topics: TargetTopics = TargetTopics()
    """How they are kept on the target."""
    start: Literal["Earliest", "Latest"] = "Earliest"
    """Where partitions begin that are there when the mirror starts for the first time. Later ones: at their start."""
    delivery: Literal["EffectivelyOnce", "AtLeastOnce", "ExactlyOnce"] = "EffectivelyOnce"
    """EffectivelyOnce reads the end of the target before it continues, so that nothing is doubled by a crash.
    ExactlyOnce is refused: it is not there yet."""
    on_gap: Literal["Stop", "Skip"] = "Stop"
    """What happens where records are lost already (retention, a topic that was created again): stop, or count them."""
    on_refused: Literal["Stop", "DeadLetter"] = "Stop"
    """What happens to a record that the target refuses (its size, its timestamp, no key in a compacted topic): its
    partition stops, or the record goes to `deadLetters.topic` and the partition continues."""
    dead_letters: DeadLetters = DeadLetters()
    """Where refused records go."""
    in_flight: Size = Field(default=64 * MEBI, ge=MEBI, le=1 << 40)
    """Bytes a task has sent and not acknowledged, at most."""
    commit_interval: Duration = Field(default=1, ge=0.05, le=60)
    """How often positions are written."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    """Of what is written."""
    load: Load = Load()
    """How many tasks, and what each carries."""
    rebalance: Rebalance = Rebalance()
    """When partitions move."""
    spark: MirrorSpark = MirrorSpark()
    """Where tasks run; each takes a slot."""
    gate: Gate = Gate()
    """Where tasks reach the driver."""
    admin: Admin = Admin(port=8081)
    """Where status and metrics are served."""
    log_format: Literal["json", "console"] = "json"
    """Form of the log."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged."""

    @field_validator("delivery")
    @classmethod
    def _there_already(cls, delivery: str) -> str:
        if delivery == "ExactlyOnce":
            raise ValueError(NO_EXACTLY_ONCE)
        return delivery

    @model_validator(mode="after")
    def _two_clusters(self) -> MirrorConfig:
        if self.source.name == self.target.name:
            raise ValueError(f"source and target are both called {self.source.name!r}: give each cluster its own name")
        if self.source.addresses & self.target.addresses:
            shared = sorted(self.source.addresses & self.target.addresses)[0]
            raise ValueError(f"source and target share the server {shared}: a cluster cannot be mirrored into itself")
        return self

    @model_validator(mode="after")
    def _executors_reach_the_gate(self) -> MirrorConfig:
        if self.spark.in_pods and self.gate.host in LOOPBACK:
            raise ValueError(
                f"executors in pods do not reach gate.host {self.gate.host}: give the driver's own address, or a name "
                "that leads to it"
            )
        return self

    @property
    def group(self) -> str:
        """The consumer group on the target that keeps positions."""
        return f"{GROUPS}{self.name}"

    @property
    def dead_letter_topic(self) -> str:
        """The topic on the target for records that it refuses; empty when these stop their partition."""
        return self.own_topics[0] if self.on_refused == "DeadLetter" else ""

    @property
    def load_topic(self) -> str:
        """The topic on the target that keeps the history of load; empty when none does."""
        return self.own_topics[1] if self.load.history == "Topic" else ""

    @property
    def own_topics(self) -> tuple[str, ...]:
        """Names on the target that the mirror keeps for itself: nothing is mirrored into them."""
        return self.dead_letters.topic or f"{self.group}-dead-letters", f"{self.group}-load"
