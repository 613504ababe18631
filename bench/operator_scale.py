"""How the operator grows: pipelines of 50, 200, 1,000 and 2,050 shards of 4 replicas on fake nodes.

    .venv/bin/python bench/operator_scale.py --shards 50 --shards 200 --shards 1000 --shards 2050

Prints, for each size, how soon a change of the pipeline's spec is heard while its shards are created, the time from
`kubectl apply` to Ready, the operator's requests and writes per shard and its processor time until then; and then, in a
minute in which nothing changes, its requests a second with those of its own Lease, its writes but for Leases, and the
part of a core that it takes; and its memory.

Then, while all shards are idle: how soon a field of one shard that another user has changed is as the pipeline has it
again (the median of several shards), how long a reconcile of every shard takes at this `--resync`, and how long an
operator that is started again needs for that, with what it wrote meanwhile.

The exit code is 1 where idle shards cost more than the bars of `bench/operator_bars.py`, for which no machine is too
slow.

With several sizes there is a table with the slope: what each further shard adds, between one size and the next. Linear
means that it stays the same. On a machine that does other work at the same time only the times are worthless.
`bench/operator_idle.py` measures idle reconciles without any server.
"""

from __future__ import annotations

import tempfile
import time
import urllib.request
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated

import psutil
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from bench.operator_bars import broken
from e2e.cluster import Cluster, ClusterError, ClusterSpec, Zone
from e2e.cluster.surroundings import Surroundings
from e2e.scenarios.operator import OperatorProcess
from e2e.scenarios.resources import Manifest, at_home, companions, example, patched
from e2e.scenarios.site import RELEASE, Site, account_of

NAME, NAMESPACE = "scale", "scale"
RESYNC = "60s"
SETTLING_SECONDS = 120.0
"""After the last table and topic: what has changed last is compared once more at a RESYNC; then all rests."""
QUIET_SECONDS = 60.0
CHANGED = 5
"""Shards of which a field is changed, one after another."""
ON_TIME = 5.0
"""Seconds that a key may be overdue at an operator that has caught up."""
ZONES, REPLICAS = ("dc-a", "dc-b"), 4
PODS_OF_A_NODE = 1000
"""A fake node has room for twice as many (`e2e.cluster.nodes`). Each node costs the API server requests of its own."""

out = Console(width=140)


@dataclass(frozen=True)
class Figures:
    """Of one size. Times in seconds, memory in bytes."""

    shards: int
    heard_after: float
    """From a change of the pipeline's spec, while its first shards were being created, to its `observedGeneration`."""
    ready_after: float
    requests: int
    writes: int
    cpu: float
    """Processor time of the operator from the apply until topics and tables were as specified."""
    quiet_requests: float
    """A second, as the figures below in a minute in which nothing changes."""
    quiet_writes: int
    quiet_cpu: float
    """Of a core."""
    memory: int


@dataclass(frozen=True)
class Reactions:
    """Of an operator whose shards are all idle, in seconds."""

    changed: float
    """From another's change of one shard until that is as the pipeline has it, the median of CHANGED shards."""
    resync: float
    """Until every shard was reconciled once more, at RESYNC."""
    restart: float
    """From the start of another process until it leads, has reconciled every shard and is behind with none."""
    restart_writes: int
    """Of that process until then, those of its Lease apart."""


def main(
    shards: Annotated[list[int] | None, typer.Option(help="Sizes, repeatable. Default: 50, 200, 1000, 2050.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds until Ready at most, for each size.")] = 3600,
) -> None:
    """Measure the operator at several sizes, each on a cluster of its own."""
    found, reactions = [], []
    for size in shards or [50, 200, 1000, 2050]:
        with out.status(f"{size} shards"):
            figures, reaction = measure(size, timeout)
        found.append(figures)
        reactions.append(reaction)
        show(found)
        show_reactions([figures.shards for figures in found], reactions)
    faults = [fault for one in found for fault in broken(one.shards, one.quiet_requests, one.quiet_writes, one.memory)]
    for fault in faults:
        out.print(fault, style="red")
    if faults:
        raise typer.Exit(1)


def measure(shards: int, timeout: float) -> tuple[Figures, Reactions]:
    with tempfile.TemporaryDirectory(prefix="blockhouse-scale-") as name:
        folder = Path(name)
        nodes = max(4, -(-shards * REPLICAS // len(ZONES) // PODS_OF_A_NODE) + 1)
        zones = tuple(Zone(name, nodes) for name in ZONES)
        with (
            Surroundings(folder / "surroundings") as surroundings,
            Cluster(folder / "k", ClusterSpec(zones)) as cluster,
        ):
            site = Site(folder, cluster, surroundings)
            try:
                site.install()
                site.simulator.start()
                site.namespace(NAMESPACE)
                site.apply(*companions(NAMESPACE))
                with site.operator("", "--resync", RESYNC) as operator:
                    figures = observe(site, operator, shards, timeout)
                    changed = median(corrected(site, number) for number in range(min(CHANGED, shards)))
                    resync = resynced(site, operator, shards)
                return figures, Reactions(changed, resync, *restarted(site, shards))
            finally:
                site.close()


def observe(site: Site, operator: OperatorProcess, shards: int, timeout: float) -> Figures:
    resource = at_home(example(), site.surroundings, name=NAME, namespace=NAMESPACE)
    ensemble = {**resource["spec"]["zookeeper"]["ensembles"][0], "shards": {"from": 0, "to": shards - 1}}
    # The addresses of all replicas of thousands of shards fit into no Secret.
    resource = patched(resource, shards=shards, zookeeper={"ensembles": [ensemble]}, clickhouse__remoteServers="Shard")
    pid = operator.pid
    assert pid is not None, "the operator died"
    process = psutil.Process(pid)
    mark, began, before = site.cluster.audit.mark(), time.monotonic(), sum(process.cpu_times()[:2])
    site.apply(resource)
    heard_after = heard(site, resource)
    site.wait_ready(NAME, NAMESPACE, timeout=timeout)
    ready_after = time.monotonic() - began
    site.wait_condition(NAME, NAMESPACE, "TopicsProvisioned", "True", timeout=timeout)
    site.wait_condition(NAME, NAMESPACE, "SchemaUpToDate", "True", timeout=timeout)
    if operator.pid != pid:
        raise ClusterError(f"the operator lost its lease meanwhile: the machine is too busy to measure {shards} shards")
    cpu, user = sum(process.cpu_times()[:2]) - before, account_of(RELEASE)
    until_ready = list(site.cluster.audit.requests(user, since=mark))
    time.sleep(SETTLING_SECONDS)
    quiet, quiet_before = site.cluster.audit.mark(), sum(process.cpu_times()[:2])
    time.sleep(QUIET_SECONDS)
    quiet_cpu = (sum(process.cpu_times()[:2]) - quiet_before) / QUIET_SECONDS
    quiet_requests = list(site.cluster.audit.requests(user, since=quiet))
    return Figures(
        shards,
        heard_after,
        ready_after,
        requests=len(until_ready),
        writes=sum(request.writes for request in until_ready),
        cpu=cpu,
        quiet_requests=len(quiet_requests) / QUIET_SECONDS,
        quiet_writes=len(site.writes(quiet)),
        quiet_cpu=quiet_cpu,
        memory=process.memory_info().rss,
    )


def heard(site: Site, resource: Manifest) -> float:
    """Seconds until the operator has taken note of a new spec, when it has most to do."""

    def first_shard_has_a_status() -> bool:
        return any(shard.get("status") for shard in site.cluster.get("csi", "-n", NAMESPACE)["items"])

    site.wait("the first shards are being created", first_shard_has_a_status, timeout=600)
    began = time.monotonic()
    site.apply(patched(resource, rollout__stepTimeout="16m"))

    def noted() -> bool:
        found = site.cluster.get("ba", NAME, "-n", NAMESPACE)
        return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])

    site.wait("the new spec is heard", noted, timeout=600)
    return time.monotonic() - began


def corrected(site: Site, number: int) -> float:
    """Seconds until a shard that another user has suspended is as the pipeline has it."""
    shard = ("csi", f"{NAME}-{number}", "-n", NAMESPACE)
    began = time.monotonic()
    site.cluster.kubectl("patch", *shard, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    site.wait(f"shard {number} is corrected", lambda: not site.cluster.get(*shard)["spec"].get("suspend"))
    return time.monotonic() - began


def resynced(site: Site, operator: OperatorProcess, shards: int) -> float:
    began, due = time.monotonic(), reconciled(operator) + shards
    site.wait("every shard was reconciled once more", lambda: reconciled(operator) >= due, timeout=1800)
    return time.monotonic() - began


def restarted(site: Site, shards: int) -> tuple[float, int]:
    """Of another operator: seconds until it has caught up, and what it wrote until then."""
    began, mark = time.monotonic(), site.cluster.audit.mark()
    with site.operator("", "--resync", RESYNC) as operator:
        site.wait(
            "the new operator has caught up",
            lambda: reconciled(operator) >= shards and reading(operator, "queue_overdue_seconds") < ON_TIME,
            timeout=1800,
        )
        return time.monotonic() - began, len(site.writes(mark))


def reconciled(operator: OperatorProcess) -> float:
    """How often it has reconciled a shard to its end."""
    return reading(operator, "reconcile_seconds_count", kind="shard", outcome="done")


def reading(operator: OperatorProcess, name: str, **labels: str) -> float:
    """The sum of the operator's metric of that name with these labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == f"blockhouse_operator_{name}" and labels.items() <= sample.labels.items()
    )


def show(found: list[Figures]) -> None:
    table = Table(title="The operator by size; 4 replicas a shard", title_justify="left")
    for column in ("shards", "spec heard after", "Ready after", "requests/shard", "writes/shard", "CPU/shard"):
        table.add_column(column, justify="right")
    for column in ("idle requests/s", "idle writes", "idle CPU", "memory"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(
            str(one.shards),
            f"{one.heard_after:.1f} s",
            f"{one.ready_after:.0f} s",
            f"{one.requests / one.shards:.0f}",
            f"{one.writes / one.shards:.0f}",
            f"{one.cpu / one.shards:.2f} s",
            f"{one.quiet_requests:.1f}",
            str(one.quiet_writes),
            f"{one.quiet_cpu:.3f} cores",
            f"{one.memory >> 20} MiB",
        )
    out.print(table)
    if len(found) > 1:
        show_slopes(found)


def show_reactions(sizes: list[int], found: list[Reactions]) -> None:
    table = Table(title=f"Reactions while all shards are idle; --resync {RESYNC}", title_justify="left")
    for column in ("shards", "a change corrected after", "all reconciled within", "restarted within", "its writes"):
        table.add_column(column, justify="right")
    for size, one in zip(sizes, found, strict=True):
        table.add_row(
            str(size), f"{one.changed:.1f} s", f"{one.resync:.0f} s", f"{one.restart:.0f} s", str(one.restart_writes)
        )
    out.print(table)


def show_slopes(found: list[Figures]) -> None:
    table = Table(title="What each further shard adds", title_justify="left")
    for column in ("shards", "Ready after", "requests", "writes", "CPU", "idle requests/s", "idle CPU", "memory"):
        table.add_column(column, justify="right")
    for less, more in pairwise(found):
        by = more.shards - less.shards
        table.add_row(
            f"{less.shards} to {more.shards}",
            f"{(more.ready_after - less.ready_after) / by:.2f} s",
            f"{(more.requests - less.requests) / by:.0f}",
            f"{(more.writes - less.writes) / by:.0f}",
            f"{(more.cpu - less.cpu) / by:.2f} s",
            f"{(more.quiet_requests - less.quiet_requests) / by:.4f}",
            f"{(more.quiet_cpu - less.quiet_cpu) / by * 1000:.3f} ms/s",
            f"{(more.memory - less.memory) / by / 1024:.0f} KiB",
        )
    out.print(table)


if __name__ == "__main__":
    typer.run(main)
