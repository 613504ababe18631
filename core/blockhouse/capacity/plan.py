"""A pipeline's size by its load. Pure: a demand goes in, figures and warnings come out.

Each figure is an upper bound by the formula that `explain` prints; what cannot be derived from a demand is not guessed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from blockhouse.capacity import measured
from blockhouse.capacity.commit_size import commit_units
from blockhouse.capacity.demand import Demand
from blockhouse.capacity.window import WEEK, window_entries
from blockhouse.config.pipeline import SPARE_UNITS, Blocks, Kafka, Quorum, Spark
from blockhouse.load.sizing import PLANNED, Work, cores_planned, memory_planned

LIMITS = Blocks()
DEFAULT_SLOTS = int(re.sub(r"\D", "", Spark().master))
METADATA_ROOM: int = Kafka.model_fields["offset_metadata_max_units"].default - SPARE_UNITS
WINDOW_NEEDED = 2 * Quorum().insert_lifetime
"""Seconds that half of a deduplication window has to outlive: below, aggregators report `DeduplicationUnsafe`."""
_AGES = (2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a demand needs. Per shard unless stated; bytes, seconds, and rates a second.

    `surviving` replicas and `clusters_up` Kafka clusters remain when one zone (with a single one: one replica) is
    down; an aggregator then owns at most `owned` streams and needs `cores` and `memory` for them.
    """

    shards: int
    rows: float
    bytes: float
    replicas: int
    surviving: int
    clusters_up: int
    cpu_per_million_rows: float
    busy: float
    partitions: int
    owned: int
    slots: int
    cores: int
    memory: int
    inserts: float
    window: int
    window_seconds: float
    metadata: int
    disk: int

    @property
    def inserts_of_replica(self) -> float:
        """Inserts a second that each surviving replica is sent."""
        return self.inserts / self.surviving


def plan_for(demand: Demand) -> Plan:
    """The size of a pipeline with default limits of blocks, except `maxAge`."""
    shards = demand.shards or math.ceil(demand.rows / (demand.rows_per_shard or 1))
    rows = demand.rows / shards
    replicas = demand.replicas or least_replicas(demand)
    surviving = max(1, replicas - _down(replicas, demand.zones))
    clusters_up = demand.kafka_clusters
    if demand.zones > 1 and clusters_up > 1:
        clusters_up = max(1, clusters_up - _down(clusters_up, demand.zones))
    cpu = demand.cpu_per_million_rows or measured.cpu_per_million_rows(demand.bytes_per_row, demand.rows_per_message)
    busy = Work(cpu).cores(rows)
    partitions = max(replicas, math.ceil(busy / PLANNED / clusters_up))
    streams = partitions * demand.kafka_clusters
    owned = demand.kafka_clusters * math.ceil(partitions / surviving)
    entries = _blocks(demand, rows / demand.tables, streams, 1, demand.max_age) * demand.parts_per_block
    window = window_entries(max(streams / demand.max_age * demand.parts_per_block, entries))
    return Plan(
        shards=shards,
        rows=rows,
        bytes=rows * demand.bytes_per_row,
        replicas=replicas,
        surviving=surviving,
        clusters_up=clusters_up,
        cpu_per_million_rows=cpu,
        busy=busy,
        partitions=partitions,
        owned=owned,
        slots=max(DEFAULT_SLOTS, owned),
        cores=cores_planned(busy, surviving, owned),
        memory=math.ceil(memory_planned(owned, demand.tables)),
        inserts=_blocks(demand, rows, streams, demand.tables, demand.max_age),
        window=window,
        window_seconds=min(window / entries, WEEK),
        metadata=commit_units(demand.tables, _messages_of_a_round(demand)),
        disk=math.ceil(demand.rows * demand.bytes_per_row * demand.retention * demand.replication_factor / clusters_up),
    )


def least_replicas(demand: Demand) -> int:
    """As few replicas of a shard as keep a quorum, and at least one, without a zone (with a single zone: a replica)."""
    needed = max(1, demand.quorum)
    return next(count for count in range(needed + 1, 2 * needed + 2) if count - _down(count, demand.zones) >= needed)


def warnings(demand: Demand, found: Plan) -> tuple[str, ...]:
    """What stands against this plan, each with what to change."""
    checks = (_of_quorum(demand, found), _of_shard(found), _of_inserts(demand, found), _of_metadata(demand, found))
    return tuple(filter(None, checks))


def _of_quorum(demand: Demand, found: Plan) -> str:
    remaining = found.replicas - _down(found.replicas, demand.zones)
    if remaining >= max(1, demand.quorum):
        return ""
    lost = "one zone" if demand.zones > 1 else "one replica"
    return (
        f"without {lost}, {remaining} of {found.replicas} replicas remain and the quorum is {demand.quorum}: nothing is"
        f" stored until it is back; give at least {least_replicas(demand)} replicas"
    )


def _of_shard(found: Plan) -> str:
    most = measured.SHARD_ROWS * measured.ROW_BYTES
    if found.rows <= measured.SHARD_ROWS and found.bytes <= most:
        return ""
    shards = math.ceil(found.shards * max(found.rows / measured.SHARD_ROWS, found.bytes / most))
    return (
        f"{found.rows:,.0f} rows/s ({found.bytes / 1e6:,.0f} MB/s) for a shard are more than were measured on two cores"
        f" with all servers ({measured.SHARD_ROWS:,}, {most / 1e6:.0f} MB/s): measure yours, or give {shards} shards"
    )


def _of_inserts(demand: Demand, found: Plan) -> str:
    if found.inserts <= measured.INSERTS:
        return ""
    streams = found.partitions * demand.kafka_clusters
    slower = {age: _blocks(demand, found.rows, streams, demand.tables, age) for age in _AGES if age > demand.max_age}
    enough = next((age for age, inserts in slower.items() if inserts <= measured.INSERTS), None)
    advice = f"maxAge {enough:g}s makes it {slower[enough]:.0f}" if enough else "fewer tables or more shards are needed"
    return (
        f"{found.inserts:,.0f} inserts/s for a shard are more than the {measured.INSERTS:.0f} that two cores with all"
        f" servers took: {advice}, or measure yours"
    )


def _of_metadata(demand: Demand, found: Plan) -> str:
    if found.metadata <= METADATA_ROOM:
        return ""
    room = 1 << (found.metadata + SPARE_UNITS).bit_length()
    return (
        f"with blocks of all {demand.tables} tables in flight a commit has {found.metadata:,} units, and by default"
        f" there is room for {METADATA_ROOM:,}: rounds end earlier; raise offset.metadata.max.bytes to {room:,} and"
        f" kafka.offsetMetadataMaxUnits to {room - 1:,}"
    )


def _down(count: int, zones: int) -> int:
    """How many of `count` that are spread evenly are lost with one zone; one of them where there is a single zone."""
    return math.ceil(count / zones) if zones > 1 else 1


def _blocks(demand: Demand, rows: float, streams: int, tables: int, max_age: float) -> float:
    """Blocks a second: each stream seals one of each table at `max_age`, or earlier by size, none without messages."""
    by_size = max(rows * demand.bytes_per_row / LIMITS.max_bytes, rows / LIMITS.max_rows)
    return min(rows / demand.rows_per_message, max(streams * tables / max_age, by_size))


def _messages_of_a_round(demand: Demand) -> int:
    """The most a stream reads in a round."""
    return max(1, int(LIMITS.max_bytes_per_round / (demand.bytes_per_row * demand.rows_per_message)))
