"""What a person knows of a pipeline before it exists: its load, and what it has to survive."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from blockhouse.config.base import Settings
from blockhouse.config.pipeline import BlockLimits, Quorum
from blockhouse.config.units import IS_SIZE, Duration, Size

MAX_RATE = 10**12
HOUR = 3600.0


class Demand(Settings):
    """The load of a whole pipeline at its busiest, and what the pipeline is to consist of. Loads are divided evenly."""

    rows_per_second: float | None = Field(default=None, gt=0, le=MAX_RATE)
    """Rows a second of all shards together, at the busiest time. Give this or `bytesPerSecond`."""
    bytes_per_second: Annotated[int | None, IS_SIZE] = Field(default=None, ge=1, le=1 << 40)
    """Bytes a second instead."""
    bytes_per_row: Size = Field(ge=1, le=64 << 20)
    """Bytes of a row in a Kafka message, in the mean."""
    rows_per_message: float = Field(default=1.0, ge=1, le=1_000_000)
    """Rows of a message, in the mean."""
    tables: int = Field(default=1, ge=1, le=100_000)
    """Tables of the pipeline; each shard has all of them."""
    shards: int | None = Field(default=None, ge=1, le=4096)
    """ClickHouse shards. Give this or `rowsPerShard`."""
    rows_per_shard: float | None = Field(default=None, gt=0, le=MAX_RATE)
    """At most so many rows a second for a shard."""
    replicas: int | None = Field(default=None, ge=1, le=16)
    """Replicas of a shard; without it as few as a quorum survives with."""
    quorum: int = Field(default=Quorum().replicas, ge=0, le=16)
    """Replicas that have a block before it counts as stored."""
    zones: int = Field(default=1, ge=1, le=16)
    """Zones over which replicas and Kafka clusters are spread evenly; from 2 on, one of them may be down. With 1, a
    replica may be."""
    kafka_clusters: int = Field(default=1, ge=1, le=16)
    """Kafka clusters, among which producers divide the load; without a cluster the others have its part."""
    replication_factor: int = Field(default=3, ge=1, le=16)
    """Copies of each topic in its Kafka cluster."""
    retention: Duration = Field(default=24 * HOUR, ge=1, le=100 * 8784 * HOUR)
    """How long Kafka keeps messages: the longest outage without loss."""
    max_age: Duration = Field(default=BlockLimits().max_age, ge=0.001, le=60)
    """`blocks.maxAge`."""
    parts_per_block: float = Field(default=1.0, ge=1, le=10_000)
    """ClickHouse partitions (`PARTITION BY`) that the rows of a block belong to, in the mean."""
    cpu_per_million_rows: float | None = Field(default=None, gt=0, le=1_000_000)
    """CPU seconds that aggregators spend on a million rows, as measured with your rows; without it as in bench.md."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Demand:
        for one, other, given in (
            ("rowsPerSecond", "bytesPerSecond", (self.rows_per_second, self.bytes_per_second)),
            ("shards", "rowsPerShard", (self.shards, self.rows_per_shard)),
        ):
            if sum(each is not None for each in given) != 1:
                raise ValueError(f"give either {one} or {other}")
        return self

    @property
    def rows(self) -> float:
        """Rows a second of the whole pipeline."""
        if self.rows_per_second is not None:
            return self.rows_per_second
        assert self.bytes_per_second is not None
        return self.bytes_per_second / self.bytes_per_row
