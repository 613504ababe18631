"""Settings of one aggregator: the documented YAML file, validated at once. See `docs/configuration.md`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from blockhouse.config.base import Settings
from blockhouse.config.endpoints import NAME, ClickHouse, KafkaCluster, ZooKeeper
from blockhouse.config.secrets import SecretRef

_SIZE = re.compile(r"^(\d+)(Ki|Mi|Gi)?$")
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h)$")


def _size(value: object) -> object:
    if isinstance(value, str) and (match := _SIZE.match(value)):
        return int(match[1]) * {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}[match[2]]
    return value


def _duration(value: object) -> object:
    if isinstance(value, str) and (match := _DURATION.match(value)):
        return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[match[2]]
    return value


Size = Annotated[int, BeforeValidator(_size)]
"""Bytes: a number, or a string with Ki, Mi or Gi."""
Duration = Annotated[float, BeforeValidator(_duration)]
"""Seconds: a number, or a string with ms, s, m or h."""

MAX_ROWS = 1_048_575
"""One less than the server's squashing limit: a block stays one Data packet and one part per partition."""


class BlockLimits(Settings):
    """When a table's block is sealed; the first limit reached counts. Sizes are of Kafka message values."""

    max_bytes: Size = Field(default=10 << 20, ge=1024, le=64 << 20)
    max_rows: int = Field(default=100_000, ge=1, le=MAX_ROWS)
    max_age: Duration = Field(default=1.0, gt=0, le=60)


class Blocks(BlockLimits):
    """Limits for every table, overrides by table name, and how far blocks may grow while catching up."""

    grow_to_bytes: Size = Field(default=64 << 20, ge=1024, le=128 << 20)
    max_bytes_per_round: Size = Field(default=96 << 20, ge=1024)
    tables: dict[str, BlockLimits] = {}


class Kafka(Settings):
    topic: str = Field(min_length=1, max_length=249)
    group: str = Field(min_length=1)
    clusters: tuple[KafkaCluster, ...] = Field(min_length=1, max_length=16)
    session_timeout: Duration = Field(default=20, ge=1)
    heartbeat_interval: Duration = Field(default=0.5, gt=0)
    commit_timeout: Duration = Field(default=10, gt=0)
    offset_metadata_max_units: int = Field(default=4095, ge=512)
    dead_letter_topic: str | None = None
    weak_offsets_topic: Literal["warn", "refuse"] = "warn"

    @property
    def dead_letters(self) -> str:
        """The topic, in each cluster, for messages that can be put into no table."""
        return self.dead_letter_topic or f"{self.topic}.dead-letters"

    @model_validator(mode="after")
    def _distinct(self) -> Kafka:
        names = [cluster.name for cluster in self.clusters]
        if len(set(names)) != len(names):
            raise ValueError(f"names of Kafka clusters must differ: {', '.join(names)}")
        return self


class Quorum(Settings):
    replicas: int = Field(default=2, ge=0, le=16, description="insert_quorum; 0 and 1 mean no quorum")
    timeout: Duration = Field(default=30, gt=0)

    @property
    def insert_lifetime(self) -> float:
        """Seconds within which an insert, with all its tries, ends after it was decided."""
        return self.timeout * 2


class Spark(Settings):
    """`master` slots are threads that mostly wait: give at least as many as streams one aggregator may own."""

    master: str = "local[8]"
    conf: dict[str, str] = {}
    lease: Duration = Field(default=60, gt=0)


class Gate(Settings):
    """Where tasks reach the driver; outside loopback only for executors on other hosts."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)


class Admin(Settings):
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    token: SecretRef | None = None

    @model_validator(mode="after")
    def _token_outside_loopback(self) -> Admin:
        if self.token is None and self.host not in {"127.0.0.1", "::1", "localhost"}:
            raise ValueError("a token is required when the admin API listens outside loopback")
        return self


class Faults(Settings):
    """Fault injection for tests and chaos runs; see `docs/faults.md`. Never on in production."""

    enabled: bool = False


class AggregatorConfig(Settings):
    """Everything one aggregator needs to know."""

    pipeline: str = Field(pattern=NAME)
    shard: str = Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")
    replica: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,63}$")
    kafka: Kafka
    clickhouse: ClickHouse = ClickHouse()
    zookeeper: ZooKeeper
    quorum: Quorum = Quorum()
    blocks: Blocks = Blocks()
    window_flush: Duration = Field(default=60, gt=0)
    handover_after: Duration = Field(default=10, gt=0)
    shutdown_budget: Duration = Field(default=25, gt=0)
    suspend_file: Path | None = None
    unknown_table: Literal["wait", "deadLetter"] = "wait"
    max_unknown_tables: int = Field(default=32, ge=0)
    default_format: Literal["rows", "nucolumnar", "json"] = "rows"
    provenance: Literal["warn", "require"] = "warn"
    spark: Spark = Spark()
    gate: Gate = Gate()
    admin: Admin = Admin()
    faults: Faults = Faults()
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
