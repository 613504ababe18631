"""Settings of one aggregator: the documented YAML file, validated at once. See `docs/configuration.md`."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from blockhouse.config.base import Settings, SettingsWithFiles
from blockhouse.config.endpoints import NAME, ClickHouse, KafkaCluster, ZooKeeper
from blockhouse.config.secrets import SecretRef
from blockhouse.config.units import Duration, Size

DAY = 86400.0
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
MAX_ROWS = 1_048_575
"""One less than the server's squashing limit: a block stays one Data packet and one part per partition."""
MAX_BLOCK_BYTES = 256 << 20
"""The same for its encoded bytes: a block has less."""
GROWN_BYTES = 128 << 20
"""What the grown blocks of all streams may hold together: a takeover of many streams must not exhaust the memory."""


class BlockLimits(Settings):
    """When a table's block is sealed; the first limit reached counts. Sizes are of Kafka message values."""

    max_bytes: Size = Field(default=10 << 20, ge=1024, le=64 << 20)
    """Size of Kafka message values at which a block is sealed, at most 64Mi; it is also sealed at 64 MiB of rows,
    whatever its messages take."""
    max_rows: int = Field(default=100_000, ge=1, le=MAX_ROWS)
    """Rows at which a block is sealed."""
    max_age: Duration = Field(default=1.0, ge=0.001, le=60)
    """Time after its first message at which a block is sealed, at most 60s; longer while inserts are slow or the
    stream is behind."""


class Blocks(BlockLimits):
    """Limits for every table, overrides by table name, and how far blocks may grow while catching up."""

    grow_to_bytes: Size = Field(default=64 << 20, ge=1024, le=128 << 20)
    """How far blocks may grow while catching up, at most 128Mi."""
    max_bytes_per_round: Size = Field(default=96 << 20, ge=1024, le=1 << 40)
    """Bound of a stream's round, hence of memory."""
    tables: dict[str, BlockLimits] = {}
    """Limits of single tables."""

    @model_validator(mode="after")
    def _tables_with_database(self) -> Blocks:
        if bare := [name for name in self.tables if not all(name.partition(".")[::2])]:
            raise ValueError(f"tables are named with their database, such as `default.{bare[0]}`: {', '.join(bare)}")
        return self


_TOPIC = re.compile(r"^(?!\.{1,2}$)[A-Za-z0-9._-]+$")
MAX_TOPIC = 249
SPARE_UNITS = 64
"""Units of the metadata that a round leaves free: the next owner commits the same entries under a name that may be
longer."""
HEARTBEATS_PER_SESSION = 3
"""So that two lost heartbeats do not yet end a session."""


class Kafka(Settings):
    """Where messages come from."""

    topic: str = Field(min_length=1, max_length=MAX_TOPIC)
    """The shard's topic, the same name in every cluster."""
    group: str = Field(min_length=1)
    """Consumer group, the same for all aggregators of the shard."""
    clusters: tuple[KafkaCluster, ...] = Field(min_length=1, max_length=16)
    """The Kafka clusters; all are consumed."""
    session_timeout: Duration = Field(default=20, ge=1, le=1800)
    """How long a dead aggregator keeps its streams; from 1s to 30m, and within what the brokers allow."""
    heartbeat_interval: Duration = Field(default=0.5, ge=0.001, le=600)
    """How often the group's coordinator hears of us, and reports streams that move: they pause up to twice as long. At
    most a third of `sessionTimeout`."""
    commit_timeout: Duration = Field(default=10, ge=0.001, le=600)
    """After this the outcome of a commit counts as unknown: the aggregator leaves the group and rejoins."""
    offset_metadata_max_units: int = Field(default=4095, ge=512)
    """Limit of the metadata, UTF-16 units; the brokers' `offset.metadata.max.bytes` less one."""
    dead_letter_topic: str | None = Field(default=None, min_length=1, max_length=MAX_TOPIC)
    """Where bad messages go; default: the topic's name with `.dead-letters`."""
    weak_offsets_topic: Literal["warn", "refuse"] = "warn"
    """What to do when `__consumer_offsets` may lose commits (replication, unclean election)."""

    @property
    def dead_letters(self) -> str:
        """The topic, in each cluster, for messages that can be put into no table."""
        return self.dead_letter_topic or f"{self.topic}.dead-letters"

    @field_validator("topic", "dead_letter_topic")
    @classmethod
    def _topic_name(cls, name: str | None) -> str | None:
        if name is not None and not _TOPIC.match(name):
            raise ValueError("a topic's name has letters, digits, `.`, `_` and `-` only, and is neither `.` nor `..`")
        return name

    @field_validator("group")
    @classmethod
    def _not_blank(cls, group: str) -> str:
        if not group.strip():
            raise ValueError("a consumer group's name is not blank")
        return group

    @model_validator(mode="after")
    def _distinct(self) -> Kafka:
        names = [cluster.name for cluster in self.clusters]
        if len(set(names)) != len(names):
            raise ValueError(f"names of Kafka clusters must differ: {', '.join(names)}")
        for one, other in combinations(self.clusters, 2):
            if same := one.addresses & other.addresses:
                raise ValueError(
                    f"clusters {one.name} and {other.name} are the same, {', '.join(sorted(same))}: every row would be"
                    " loaded twice, under both names"
                )
        return self

    @model_validator(mode="after")
    def _topics_apart(self) -> Kafka:
        if self.dead_letters == self.topic:
            raise ValueError(
                f"deadLetterTopic is the topic itself, {self.topic}: every dead letter would be read and written again"
            )
        if len(self.dead_letters) > MAX_TOPIC:
            raise ValueError(
                f"the dead-letter topic {self.dead_letters} has a name of more than {MAX_TOPIC} characters:"
                " set deadLetterTopic"
            )
        return self

    @model_validator(mode="after")
    def _heartbeats(self) -> Kafka:
        most = self.session_timeout / HEARTBEATS_PER_SESSION
        if self.heartbeat_interval > most:
            raise ValueError(
                f"heartbeatInterval {self.heartbeat_interval:g} s is more than a third of sessionTimeout"
                f" {self.session_timeout:g} s: give at most {most:g} s, or lost heartbeats end the session"
            )
        return self


class Quorum(Settings):
    """How many replicas have a block before it counts as stored."""

    replicas: int = Field(default=2, ge=0, le=16)
    """`insert_quorum`; 0 and 1 mean no quorum."""
    timeout: Duration = Field(default=30, ge=0.001, le=3600)
    """How long an insert waits for its quorum: `insert_quorum_timeout`."""

    @property
    def insert_lifetime(self) -> float:
        """Seconds within which an insert, with all its tries, ends after it was decided."""
        return self.timeout * 2


class Spark(Settings):
    """Spark of one aggregator."""

    master: str = Field(default="local[8]", min_length=1, max_length=256)
    """Slots mostly wait: at least as many as streams one aggregator may own."""
    conf: dict[str, str] = {}
    """Further Spark settings."""
    lease: Duration = Field(default=60, ge=0.001, le=DAY)
    """How long one Spark task works on a stream."""

    @property
    def in_pods(self) -> bool:
        """Whether Spark starts executors as pods of Kubernetes."""
        return self.master.startswith("k8s://")


class Gate(Settings):
    """Where tasks reach the driver."""

    host: str = "127.0.0.1"
    """Where tasks reach the driver; outside loopback only for executors on other hosts."""
    port: int = Field(default=0, ge=0, le=65535)
    """Its port; 0 takes a free one."""


class AdminTls(SettingsWithFiles):
    """TLS of the HTTP API. Both files are read again when they were renewed."""

    cert_file: Path
    """Its certificate, with the chain up to the authority (PEM)."""
    key_file: Path
    """Its key (PEM)."""


class Admin(Settings):
    """Where the HTTP API listens."""

    host: str = "127.0.0.1"
    """Where the HTTP API is served ([openapi.yaml](openapi.yaml))."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Its port; 0 takes a free one."""
    token: SecretRef | None = None
    """The token; required outside loopback."""
    tls: AdminTls | None = None
    """TLS; without it the API is plain HTTP."""

    @property
    def url(self) -> str:
        """Where it is served: `https://HOST:PORT`."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"

    @model_validator(mode="after")
    def _token_outside_loopback(self) -> Admin:
        if self.token is None and self.host not in LOOPBACK:
            raise ValueError("a token is required when the admin API listens outside loopback")
        return self


class Faults(Settings):
    """Fault injection for tests and chaos runs; see `docs/faults.md`."""

    enabled: bool = False
    """Lets tests and chaos runs make the aggregator fail, over the admin API (docs/faults.md). Never in production."""


class AggregatorConfig(Settings):
    """Everything one aggregator needs to know."""

    pipeline: str = Field(pattern=NAME)
    """Name of the pipeline: part of tokens and of paths in ZooKeeper. Never change it."""
    shard: str = Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")
    """The ClickHouse shard this aggregator loads."""
    replica: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,63}$")
    """The ClickHouse replica this aggregator inserts into; also its static member id in the consumer groups. Unique in
    the shard."""
    kafka: Kafka
    """Where messages come from."""
    clickhouse: ClickHouse = ClickHouse()
    """Where rows go."""
    zookeeper: ZooKeeper
    """The shard's ensemble."""
    quorum: Quorum = Quorum()
    """How many replicas have a block before it counts as stored."""
    blocks: Blocks = Blocks()
    """Limits of blocks."""
    window_flush: Duration = Field(default=60, ge=0.001, le=DAY)
    """How often the counts in the metadata start again at zero."""
    handover_after: Duration = Field(default=10, ge=0.001, le=DAY)
    """How long the local replica may be unusable before its streams are given to another one."""
    shutdown_budget: Duration = Field(default=25, ge=0.001, le=3600)
    """Time for an orderly end; the pod's grace period is longer."""
    suspend_file: Path | None = None
    """A file that is read every second: while it contains `true` the aggregator owns no stream."""
    unknown_table: Literal["wait", "deadLetter"] = "wait"
    """A message for a table that does not exist: its table waits, or the message is dead-lettered."""
    max_unknown_tables: int = Field(default=32, ge=0, le=100_000)
    """Beyond this many unknown tables their messages are dead-lettered."""
    default_format: Literal["rows", "nucolumnar", "json"] = "rows"
    """The format of messages without a `format` header: `nucolumnar` for eBay's producers."""
    provenance: Literal["warn", "require"] = "warn"
    """What to do with a table without provenance columns (`_kafka_cluster`, `_kafka_partition`, `_kafka_offset`)."""
    spark: Spark = Spark()
    """Its Spark application."""
    gate: Gate = Gate()
    """Where tasks reach the driver."""
    admin: Admin = Admin()
    """Its HTTP API."""
    faults: Faults = Faults()
    """Fault injection."""
    log_format: Literal["json", "console"] = "json"
    """Form of the log."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged."""
