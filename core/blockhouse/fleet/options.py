"""Options the `plan` commands share, so that each means the same and reads the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

LIVE, FILES, PLACING, OUTPUT = "Live cluster", "Input", "Placement", "Output"

BootstrapServer = Annotated[
    str | None, typer.Option(help="Live cluster, host:port[,host:port...].", rich_help_panel=LIVE)
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="Aggregator configuration that describes the cluster (TLS, SASL).", rich_help_panel=LIVE
    ),
]
KafkaName = Annotated[
    str | None, typer.Option("--kafka-cluster", help="Name of the Kafka cluster in --config.", rich_help_panel=LIVE)
]
MapFile = Annotated[
    Path | None, typer.Option("--map", help="Current map, kafka-reassign-partitions JSON.", rich_help_panel=FILES)
]
ClusterFile = Annotated[
    Path | None,
    typer.Option("--cluster", help="Brokers, JSON list of {id, rack, storage_free} (bytes).", rich_help_panel=FILES),
]
SizesFile = Annotated[
    Path | None, typer.Option("--sizes", help="Sizes, JSON {topic: {partition: bytes}}.", rich_help_panel=FILES)
]
Brokers = Annotated[
    str | None,
    typer.Option(
        help="Ids of the brokers that shall hold the replicas, 1001,1002; default: all.", rich_help_panel=FILES
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(help="Only topics whose whole name matches this expression. Repeatable.", rich_help_panel=FILES),
]
TopicsExclude = Annotated[list[str] | None, typer.Option(help="Not these topics. Repeatable.", rich_help_panel=FILES)]
MinRackIds = Annotated[
    int,
    typer.Option(
        min=0,
        help="Racks a set must have before one may be used twice; 0: never twice.",
        rich_help_panel=PLACING,
    ),
]
OptimizeLeadership = Annotated[
    bool,
    typer.Option("--optimize-leadership", help="Make leaders even over the brokers.", rich_help_panel=PLACING),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Write the plan here; several steps to NAME-1.json, NAME-2.json ...", rich_help_panel=OUTPUT),
]
Rollback = Annotated[
    Path | None,
    typer.Option(help="Write the sets these partitions have now here: `apply` it to go back.", rich_help_panel=OUTPUT),
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.", rich_help_panel=OUTPUT)]
IgnoreWarnings = Annotated[
    bool,
    typer.Option(
        "--ignore-warnings", help="Write the plan in spite of warnings (exit code 3).", rich_help_panel=OUTPUT
    ),
]
SkipNoOps = Annotated[
    bool,
    typer.Option("--skip-no-ops", help="Write only partitions that change.", rich_help_panel=OUTPUT),
]
Phased = Annotated[
    bool,
    typer.Option(
        "--phased-reassignment",
        help="Two steps: first the new sets with the old leader first, then the plan.",
        rich_help_panel=OUTPUT,
    ),
]
ChunkStepSize = Annotated[
    int,
    typer.Option(min=0, help="Steps that each empty at most this many brokers; 0: one step.", rich_help_panel=OUTPUT),
]
LeaderEvacBrokers = Annotated[
    str | None,
    typer.Option(help="Brokers that shall lead nothing, 1001,1002.", rich_help_panel=PLACING),
]
LeaderEvacTopics = Annotated[
    list[str] | None,
    typer.Option(help="Take the lead away in these topics only (expression). Repeatable.", rich_help_panel=PLACING),
]


@dataclass(frozen=True, slots=True)
class Output:
    """How a plan is written and reported."""

    out: Path | None
    rollback: Path | None
    json: bool
    ignore_warnings: bool
    skip_no_ops: bool
    phased: bool
    chunk_step_size: int
