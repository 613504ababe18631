"""`blockhouse topics plan`: options in, a plan out. It changes nothing in any cluster."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Literal

import typer

from blockhouse.fleet import options as o
from blockhouse.fleet.inputs import Inputs, Sources, connected, gather
from blockhouse.fleet.output import deliver, evacuated
from blockhouse.placement.rebalance import RebalanceOptions, plan_rebalance
from blockhouse.placement.rebuild import RebuildOptions, plan_rebuild

app = typer.Typer(
    no_args_is_help=True,
    help="Make a plan. Exit code 0: made, 2: bad input, 3: written in spite of warnings, 4: held back.",
)

_INPUT_EXAMPLE = "--map map.json --cluster brokers.json --sizes sizes.json"


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse topics plan rebuild --bootstrap-server kafka:9092 --brokers 1,2,4 --out plan.json\n\n"
    f"  blockhouse topics plan rebuild {_INPUT_EXAMPLE} --placement storage --force-rebuild --out plan.json"
)
def rebuild(
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    map_file: o.MapFile = None,
    cluster_file: o.ClusterFile = None,
    sizes_file: o.SizesFile = None,
    brokers: o.Brokers = None,
    topics: o.Topics = None,
    topics_exclude: o.TopicsExclude = None,
    placement: Annotated[Literal["count", "storage"], typer.Option(help="What is evened out.")] = "count",
    optimize: Annotated[
        Literal["distribution", "storage"], typer.Option(help="By storage: spread partners, or pack tightly.")
    ] = "distribution",
    replication: Annotated[int, typer.Option(min=0, help="New replication factor; 0: as it is.")] = 0,
    force_rebuild: Annotated[bool, typer.Option("--force-rebuild", help="Forget where replicas are.")] = False,
    sub_affinity: Annotated[
        bool, typer.Option("--sub-affinity", help="A new broker takes exactly the slots of one that leaves.")
    ] = False,
    partition_size_factor: Annotated[float, typer.Option(help="Head room: 1.2 plans 20 % more.")] = 1.0,
    min_rack_ids: o.MinRackIds = 0,
    optimize_leadership: o.OptimizeLeadership = False,
    leader_evac_brokers: o.LeaderEvacBrokers = None,
    leader_evac_topics: o.LeaderEvacTopics = None,
    out: o.Out = None,
    rollback: o.Rollback = None,
    json: o.Json = False,
    ignore_warnings: o.IgnoreWarnings = False,
    skip_no_ops: o.SkipNoOps = False,
    phased_reassignment: o.Phased = False,
    chunk_step_size: o.ChunkStepSize = 0,
) -> None:
    """Replace, add or drop brokers, change the replication, or spread everything afresh."""
    settings = RebuildOptions(
        placement=placement,
        optimize=optimize,
        replication=replication,
        force=force_rebuild,
        sub_affinity=sub_affinity,
        optimize_leadership=optimize_leadership,
        min_rack_ids=min_rack_ids,
        size_factor=partition_size_factor,
    )
    sources = _sources(map_file, cluster_file, sizes_file, brokers, topics, topics_exclude)
    inputs = _gather(sources, bootstrap_server, config, kafka_cluster)
    made = plan_rebuild(inputs.current, inputs.cluster, inputs.brokers, settings, inputs.sizes)
    made = evacuated(made, leader_evac_brokers, leader_evac_topics or ())
    output = o.Output(out, rollback, json, ignore_warnings, skip_no_ops, phased_reassignment, chunk_step_size)
    deliver(made, inputs.sizes, output)


def unload(
    context: typer.Context,
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    map_file: o.MapFile = None,
    cluster_file: o.ClusterFile = None,
    sizes_file: o.SizesFile = None,
    brokers: o.Brokers = None,
    topics: o.Topics = None,
    topics_exclude: o.TopicsExclude = None,
    storage_threshold: Annotated[
        float, typer.Option(help="rebalance: unload brokers with this fraction less than the harmonic mean free.")
    ] = 0.20,
    storage_threshold_gb: Annotated[
        float, typer.Option(min=0, help="rebalance: unload brokers with less than this free instead (2^30 bytes).")
    ] = 0.0,
    tolerance: Annotated[
        float, typer.Option(min=0, help="How far past the mean a move may go; 0: the best of 0.01 to 0.98.")
    ] = 0.0,
    partition_limit: Annotated[int, typer.Option(min=1, help="Largest partitions of a broker to try.")] = 30,
    partition_size_threshold: Annotated[float, typer.Option(min=0, help="Smallest partition worth moving, MiB.")] = 512,
    locality_scoped: Annotated[
        bool, typer.Option("--locality-scoped", help="Move only within the rack of the source.")
    ] = False,
    min_rack_ids: o.MinRackIds = 0,
    optimize_leadership: o.OptimizeLeadership = False,
    out: o.Out = None,
    rollback: o.Rollback = None,
    json: o.Json = False,
    ignore_warnings: o.IgnoreWarnings = False,
    skip_no_ops: o.SkipNoOps = False,
    phased_reassignment: o.Phased = False,
    chunk_step_size: o.ChunkStepSize = 0,
) -> None:
    settings = RebalanceOptions(
        operation="scale" if context.info_name == "scale" else "rebalance",
        threshold=storage_threshold,
        threshold_gib=storage_threshold_gb,
        tolerance=tolerance or None,
        partition_limit=partition_limit,
        min_partition_mib=partition_size_threshold,
        rack_local=locality_scoped,
        min_rack_ids=min_rack_ids,
        optimize_leadership=optimize_leadership,
    )
    sources = _sources(map_file, cluster_file, sizes_file, brokers, topics, topics_exclude)
    inputs = _gather(sources, bootstrap_server, config, kafka_cluster)
    made = plan_rebalance(inputs.current, inputs.cluster, inputs.brokers, inputs.sizes, settings)
    output = o.Output(out, rollback, json, ignore_warnings, skip_no_ops, phased_reassignment, chunk_step_size)
    deliver(made, inputs.sizes, output)


app.command(
    "rebalance",
    help="Move replicas off brokers short of free space.",
    epilog="Example:\n\n  blockhouse topics plan rebalance --bootstrap-server kafka:9092 --out plan.json",
)(unload)
app.command(
    "scale",
    help="Give new brokers their share of the replicas.",
    epilog=f"Example:\n\n  blockhouse topics plan scale {_INPUT_EXAMPLE} --brokers 1,2,3,4 --out plan.json",
)(unload)


def _sources(
    map_file: Path | None,
    cluster_file: Path | None,
    sizes_file: Path | None,
    brokers: str | None,
    topics: list[str] | None,
    topics_exclude: list[str] | None,
) -> Sources:
    return Sources(map_file, cluster_file, sizes_file, brokers, tuple(topics or ()), tuple(topics_exclude or ()))


def _gather(sources: Sources, bootstrap_server: str | None, config: Path | None, name: str | None) -> Inputs:
    with contextlib.ExitStack() as stack:
        fleet = connected(bootstrap_server, config, name)
        return gather(sources, stack.enter_context(fleet) if fleet else None)
