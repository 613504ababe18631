"""How the operator grows: pipelines of 50, 200, 1,000 and 2,050 shards of 4 replicas on fake nodes.

    .venv/bin/python bench/operator_scale.py --shards 50 --shards 200 --shards 1000 --shards 2050

Prints, for each size, how soon a change of the pipeline's spec is heard while its shards are created, the time from
`kubectl apply` to Ready, the operator's requests and writes per shard and its processor time until then; and then, in a
minute in which nothing changes, its requests a second with those of its own Lease, its writes but for Leases, and the
part of a core that it takes; and its memory. With several sizes a second table has the slope: what each further shard
adds, between one size and the next. Linear means that it stays the same. On a machine that does other work at the same
time only the two times are worthless. `bench/operator_idle.py` measures idle reconciles without any server.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console
from rich.table import Table

from e2e.cluster import Cluster, ClusterError, ClusterSpec, Zone
from e2e.cluster.surroundings import Surroundings
from e2e.scenarios.operator import OperatorProcess
from e2e.scenarios.resources import Manifest, at_home, companions, example, patched
from e2e.scenarios.site import RELEASE, Site, account_of

NAME, NAMESPACE = "scale", "scale"
QUIET_SECONDS = 60.0
ZONES, REPLICAS = ("dc-a", "dc-b"), 4
PODS_OF_A_NODE = 40
"""A fake node has 256 cores (`e2e.cluster.nodes`), a pod of the example asks for six."""

out = Console()


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


def main(
    shards: Annotated[list[int] | None, typer.Option(help="Sizes, repeatable. Default: 50, 200, 1000, 2050.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds until Ready at most, for each size.")] = 3600,
) -> None:
    """Measure the operator at several sizes, each on a cluster of its own."""
    found = []
    for size in shards or [50, 200, 1000, 2050]:
        with out.status(f"{size} shards"):
            found.append(measure(size, timeout))
        show(found)


def measure(shards: int, timeout: float) -> Figures:
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
                with site.operator("", "--resync", "60s") as operator:
                    return observe(site, operator, shards, timeout)
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
    time.sleep(QUIET_SECONDS)  # until the last events of the start have been followed
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
