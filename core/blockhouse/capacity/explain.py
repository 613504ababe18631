"""The figures of a plan for people: what each is, by which formula, and where its constants come from. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from blockhouse.capacity import measured
from blockhouse.capacity.demand import HOUR, Demand
from blockhouse.capacity.plan import DEFAULT_SLOTS, LIMITS, METADATA_ROOM, WINDOW_NEEDED, Plan
from blockhouse.capacity.window import OUTAGE
from blockhouse.config.units import duration_text, size_text
from blockhouse.load.sizing import BASE_MEMORY, COPIES, PLANNED

BENCH, DEFAULTS = "docs/bench.md", "defaults"
"""Where constants come from: measured figures, or the defaults of the settings (docs/configuration.md)."""
NOT_KNOWN = (
    "how unevenly tables, partitions and shards are loaded: all are taken as equal",
    "peaks: give the load of the busiest minute, and after an outage what has gathered comes on top of it",
    "columns and formats: between narrow and wide rows decoding differs seventeenfold (docs/bench.md, Decoding)",
    "processors, memory, disks and merges of ClickHouse, its queries, brokers, ZooKeeper and the network",
    "compression by producers, which Kafka's disks need less for, and what Kafka stores beside rows",
    "another machine than the two cores that were measured: measure with `make bench`, give --cpu-per-million-rows",
)


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` in `unit` for programs, `text` for people; `source` names where the constants of the formula are from."""

    name: str
    value: float | str
    unit: str
    text: str
    formula: str
    source: str = "demand"


def figures(demand: Demand, plan: Plan) -> tuple[Figure, ...]:
    """All figures of a plan, in the order in which they follow from each other. Names are those of `--json`."""
    return (*_layout(demand, plan), *_aggregator(plan), *_blocks(demand, plan), *_window(plan), *_kafka(demand, plan))


def _count(name: str, value: int, formula: str, source: str = "demand") -> Figure:
    return Figure(name, value, "", f"{value:,}", formula, source)


def _layout(demand: Demand, plan: Plan) -> Sequence[Figure]:
    lost = "one of the zones" if demand.zones > 1 else "one replica"
    shards = "as given" if demand.shards else "rows/s divided by rowsPerShard, rounded up"
    replicas = "as given" if demand.replicas else f"the least with which a quorum of {demand.quorum} survives {lost}"
    return (
        _count("shards", plan.shards, shards),
        Figure("rowsPerShard", plan.rows, "rows/s", f"{plan.rows:,.0f} rows/s", "rows/s divided by shards"),
        _count("replicas", plan.replicas, f"of a shard: {replicas}", DEFAULTS),
        _count("survivingReplicas", plan.surviving, f"replicas without {lost}"),
        _count(
            "survivingKafkaClusters", plan.clusters_up, "Kafka clusters without one zone, if there are several of both"
        ),
        _processor_time(demand, plan),
        Figure(
            "busyCores", plan.busy, "cores", f"{plan.busy:.2f}", "rows/s x CPU s for a row: all aggregators of a shard"
        ),
        _count(
            "partitions",
            plan.partitions,
            f"of a topic, in each Kafka cluster: a stream takes at most {PLANNED:.0%} of a core with the clusters that"
            " survive, and each replica has one",
            "docs/load.md",
        ),
    )


def _processor_time(demand: Demand, plan: Plan) -> Figure:
    seconds = plan.cpu_per_million_rows
    formula, source = "as given", "demand"
    if demand.cpu_per_million_rows is None:
        per_row = measured.CPU_PER_MILLION_ROWS - measured.CPU_OF_MESSAGES
        per_message = measured.CPU_OF_MESSAGES * measured.ROWS_PER_MESSAGE
        formula = (
            f"{per_row:.2f} x bytesPerRow / {measured.ROW_BYTES} (1 at least) + {per_message:g} / rowsPerMessage,"
            " of aggregators"
        )
        source = BENCH
    return Figure("cpuPerMillionRows", seconds, "CPU s", f"{seconds:.2f} CPU s", formula, source)


def _aggregator(plan: Plan) -> Sequence[Figure]:
    mebibytes = math.ceil(plan.memory / (1 << 20))
    return (
        _count(
            "streamsOwned", plan.owned, "streams of an aggregator: Kafka clusters x partitions / surviving replicas"
        ),
        Figure(
            "sparkMaster",
            f"local[{plan.slots}]",
            "",
            f"local[{plan.slots}]",
            f"a slot for each stream owned, {DEFAULT_SLOTS} at least",
            DEFAULTS,
        ),
        Figure(
            "cpuRequest",
            plan.cores,
            "cores",
            f"cpu: {plan.cores}",
            f"busy cores / {PLANNED} / surviving replicas, rounded up; at most one a stream",
            BENCH,
        ),
        Figure(
            "memoryRequest",
            mebibytes << 20,
            "bytes",
            f"memory: {mebibytes}Mi",
            f"{BASE_MEMORY >> 20} MiB + {COPIES} x blocks in hand (streams x tables x maxBytes, at most a round of"
            f" {size_text(LIMITS.max_bytes_per_round)} a stream), as measured while a backlog drains",
            BENCH,
        ),
    )


def _blocks(demand: Demand, plan: Plan) -> Sequence[Figure]:
    limits = (size_text(LIMITS.max_bytes), f"{LIMITS.max_rows:,} rows", duration_text(demand.max_age))
    parts = plan.inserts * demand.parts_per_block
    return (
        Figure(
            "blockLimits",
            f"{LIMITS.max_bytes}/{LIMITS.max_rows}/{demand.max_age:g}",
            "bytes/rows/s",
            ", ".join(limits),
            "maxBytes, maxRows, maxAge: whatever comes first; while catching up blocks grow to"
            f" {size_text(LIMITS.grow_to_bytes)}",
            DEFAULTS,
        ),
        Figure(
            "inserts",
            plan.inserts,
            "1/s",
            f"{plan.inserts:,.1f}/s",
            "of a shard: a block of each table and stream every maxAge, more if size seals it, never more than"
            f" messages; {measured.INSERTS:g}/s were measured",
            BENCH,
        ),
        Figure(
            "insertsOfReplica",
            plan.inserts_of_replica,
            "1/s",
            f"{plan.inserts_of_replica:,.1f}/s",
            "inserts / surviving replicas",
        ),
        Figure(
            "partsOfReplica", parts, "1/s", f"{parts:,.1f}/s", "inserts x partsPerBlock: every replica has every part"
        ),
    )


def _window(plan: Plan) -> Sequence[Figure]:
    return (
        _count(
            "deduplicationWindow",
            plan.window,
            f"blocks of each table in {OUTAGE:g} s: replicated_deduplication_window, which Blockhouse sets in tables it"
            " creates",
            DEFAULTS,
        ),
        Figure(
            "replayedWithin",
            plan.window_seconds / 2,
            "s",
            f"{plan.window_seconds / 2:,.0f} s",
            "half of the window: a block that is replayed within it is recognised by ClickHouse;"
            f" {WINDOW_NEEDED / 2:g} s are needed",
            DEFAULTS,
        ),
    )


def _kafka(demand: Demand, plan: Plan) -> Sequence[Figure]:
    return (
        Figure(
            "metadata",
            plan.metadata,
            "UTF-16 units",
            f"{plan.metadata:,} units",
            f"a block of each table in flight, written by the codec; there is room for {METADATA_ROOM:,}",
            DEFAULTS,
        ),
        Figure(
            "kafkaDisk",
            plan.disk,
            "bytes",
            f"{plan.disk / 1e9:,.0f} GB",
            f"of each surviving Kafka cluster: bytes/s x {demand.retention / HOUR:g} h x {demand.replication_factor}"
            " copies",
        ),
    )
