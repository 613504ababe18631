"""How the operator grows: pipelines of 50 to 2,050 shards of 4 replicas on fake nodes.

    .venv/bin/python bench/operator_scale.py --shards 50 --shards 200 --shards 1000
    .venv/bin/python bench/operator_scale.py --shards 2050 --namespaces 10 --timeout 7200

Prints, for each size, how soon a change of the pipeline's spec is heard while its shards are created, the time from
`kubectl apply` to Ready, the operator's requests and writes per shard and its processor time until then; and then, in
two resyncs in which nothing changes, its requests a second with those of its own Lease, its writes but for Leases, and
the part of a core that it takes; and its memory.

Then, while all shards are idle: how soon a field of one shard that another user has changed is as the pipeline has it
again (the median of several shards), how long a reconcile of every shard takes at the `--resync`, and how long an
operator that is started again needs for that, with what it wrote meanwhile.

The exit code is 1 where idle shards cost more than the bars of `bench/operator_bars.py`, for which no machine is too
slow.

With several `--namespaces` each has a pipeline with its part of the shards: at each change Kubernetes' own controllers
look through the whole namespace, so that the time in which one gets ready grows with the square of its shards.

With several sizes there is a table with the slope: what each further shard adds, between one size and the next. Linear
means that it stays the same. On a machine that does other work at the same time only the times are worthless.
`bench/operator_idle.py` measures idle reconciles without any server.
"""

from __future__ import annotations

import tempfile
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import psutil
import typer
from prometheus_client.parser import text_string_to_metric_families

from bench.operator_bars import broken
from bench.operator_figures import Figures, Reactions, out, show, show_reactions
from blockhouse.config.units import seconds
from e2e.cluster import Cluster, ClusterError, ClusterSpec, Zone
from e2e.cluster.surroundings import Surroundings
from e2e.scenarios.operator import OperatorProcess
from e2e.scenarios.resources import Manifest, at_home, companions, example, patched
from e2e.scenarios.site import RELEASE, Site, account_of, is_ready
from e2e.stack.process import wait_until
from e2e.stack.spec import StackSpec

NAME = "scale"
SETTLING, QUIET = 2, 2
"""Resyncs after the last table and topic, at one of which what has changed last is compared once more; and then those
in which an operator is measured at rest."""
CHANGED = 5
"""Shards of which a field is changed, one after another."""
ON_TIME = 5.0
"""Seconds that a key may be overdue at an operator that has caught up."""
CHECKS, REPORTS = 10.0, 60.0
"""Seconds between two checks of the pipelines while shards are created, and between two reports of it."""
SPEC = StackSpec(kafka_heap="1g", kafka_properties={"log.index.size.max.bytes": "4096"})
"""A broker holds thousands of partitions here; without room for them it collects garbage all the time."""
ZONES, REPLICAS = ("dc-a", "dc-b"), 4
PODS_OF_A_NODE = 1000
"""A fake node has room for twice as many (`e2e.cluster.nodes`). Each node costs the API server requests of its own."""


def main(
    shards: Annotated[list[int] | None, typer.Option(help="Sizes, repeatable. Default: 50, 200, 1000.")] = None,
    namespaces: Annotated[int, typer.Option(min=1, help="Namespaces, with a part of the shards in each.")] = 1,
    resync: Annotated[str, typer.Option(help="The operator's --resync.")] = "60s",
    timeout: Annotated[float, typer.Option(help="Seconds until Ready at most, for each size.")] = 3600,
) -> None:
    """Measure the operator at several sizes, each on a cluster of its own."""
    found, reactions = [], []
    sizes = shards or [50, 200, 1000]
    if namespaces > min(sizes):
        raise typer.BadParameter(f"{min(sizes)} shards cannot be divided over {namespaces}", param_hint="--namespaces")
    for size in sizes:
        with out.status(f"{size} shards"):
            figures, reaction = measure(Trial(size, namespaces, resync, timeout))
        found.append(figures)
        reactions.append(reaction)
        show(found)
        show_reactions([figures.shards for figures in found], reactions, resync)
    faults = [fault for one in found for fault in broken(one.shards, one.quiet_requests, one.quiet_writes, one.memory)]
    for fault in faults:
        out.print(fault, style="red")
    if faults:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Trial:
    """One size, by `namespaces` pipelines. `timeout` is in seconds."""

    shards: int
    namespaces: int
    resync: str
    timeout: float

    @property
    def resync_seconds(self) -> float:
        return seconds(self.resync)

    @property
    def sizes(self) -> dict[str, int]:
        """Shards by pipeline, which has the name of its namespace."""
        part, more = divmod(self.shards, self.namespaces)
        names = [f"{NAME}-{number}" if self.namespaces > 1 else NAME for number in range(self.namespaces)]
        return {name: part + (number < more) for number, name in enumerate(names)}


def measure(trial: Trial) -> tuple[Figures, Reactions]:
    with tempfile.TemporaryDirectory(prefix="blockhouse-scale-") as temporary:
        folder = Path(temporary)
        nodes = max(4, -(-trial.shards * REPLICAS // len(ZONES) // PODS_OF_A_NODE) + 1)
        zones = tuple(Zone(name, nodes) for name in ZONES)
        with (
            Surroundings(folder / "surroundings", SPEC) as surroundings,
            Cluster(folder / "k", ClusterSpec(zones)) as cluster,
        ):
            site = Site(folder, cluster, surroundings)
            try:
                site.install()
                site.simulator.start()
                for name in trial.sizes:
                    site.apply(*companions(site.namespace(name)))
                with site.operator("", "--resync", trial.resync) as operator:
                    figures = observe(site, operator, trial)
                    out.log(f"idle: {figures.quiet_cpu:.3f} cores, {figures.quiet_requests:.1f} requests/s")
                    first, its_shards = next(iter(trial.sizes.items()))
                    changed = median(corrected(site, first, number) for number in range(min(CHANGED, its_shards)))
                    out.log(f"a change by hand is corrected after {changed:.1f} s")
                    resync = resynced(site, operator, trial.shards)
                    out.log(f"all reconciled within {resync:.0f} s")
                return figures, Reactions(changed, resync, *restarted(site, trial))
            finally:
                site.close()


def pipeline(site: Site, name: str, shards: int) -> Manifest:
    resource = at_home(example(), site.surroundings, name=name, namespace=name)
    ensemble = {**resource["spec"]["zookeeper"]["ensembles"][0], "shards": {"from": 0, "to": shards - 1}}
    # The addresses of all replicas of thousands of shards fit into no Secret.
    return patched(resource, shards=shards, zookeeper={"ensembles": [ensemble]}, clickhouse__remoteServers="Shard")


def observe(site: Site, operator: OperatorProcess, trial: Trial) -> Figures:
    resources = [pipeline(site, name, shards) for name, shards in trial.sizes.items()]
    processes = Processes(operator)
    mark, began, before = site.cluster.audit.mark(), time.monotonic(), processes.seconds()
    site.apply(*resources)
    heard_after = heard(site, resources[0])
    out.log(f"a change of the spec is heard after {heard_after:.1f} s")
    until_ready(site, processes, trial)
    ready_after = time.monotonic() - began
    out.log(f"Ready after {ready_after:.0f} s")
    for name in trial.sizes:
        site.wait_condition(name, name, "TopicsProvisioned", "True", timeout=trial.timeout)
        site.wait_condition(name, name, "SchemaUpToDate", "True", timeout=trial.timeout)
    cpu, user, process = processes.seconds() - before, account_of(RELEASE), processes.newest
    creating = list(site.cluster.audit.requests(user, since=mark))
    time.sleep(SETTLING * trial.resync_seconds)
    quiet_seconds = QUIET * trial.resync_seconds
    quiet, quiet_before = site.cluster.audit.mark(), sum(process.cpu_times()[:2])
    time.sleep(quiet_seconds)
    quiet_cpu = (sum(process.cpu_times()[:2]) - quiet_before) / quiet_seconds
    quiet_requests = site.cluster.audit.counts(user, since=quiet)
    if operator.pid != process.pid:
        raise ClusterError("the operator lost its lease while it was idle: the machine is too busy for a measurement")
    asked = ", ".join(f"{count} x {what}" for what, count in quiet_requests.most_common())
    out.log(f"requests in {quiet_seconds:.0f} s in which nothing changed: {asked}")
    return Figures(
        trial.shards,
        heard_after,
        ready_after,
        requests=len(creating),
        writes=sum(request.writes for request in creating),
        cpu=cpu,
        quiet_requests=quiet_requests.total() / quiet_seconds,
        quiet_writes=len(site.writes(quiet)),
        quiet_cpu=quiet_cpu,
        memory=process.memory_info().rss,
    )


class Processes:
    """Of the operator: on a busy machine it loses its Lease and starts again, which its shards survive.

    What one took after the last reading before it ended is not counted.
    """

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self._spent: dict[int, float] = {}
        self.newest = self._process()

    def seconds(self) -> float:
        """Processor time of all of them."""
        if self._operator.alive and self._operator.pid != self.newest.pid:
            out.log("the operator lost its lease and started again: the machine is too busy for times of creation")
            self.newest = self._process()
        with suppress(psutil.NoSuchProcess):
            self._spent[self.newest.pid] = sum(self.newest.cpu_times()[:2])
        return sum(self._spent.values())

    def _process(self) -> psutil.Process:
        assert self._operator.pid is not None, "the operator died"
        return psutil.Process(self._operator.pid)


def until_ready(site: Site, processes: Processes, trial: Trial) -> None:
    """Checks rarely, so that it costs nothing."""
    reported = time.monotonic()

    def ready() -> bool:
        nonlocal reported
        processes.seconds()
        site.keep_alive()
        found = [site.cluster.get("ba", name, "-n", name) for name in trial.sizes]
        if time.monotonic() - reported > REPORTS:
            reported = time.monotonic()
            counts = [one.get("status", {}).get("replicas", {}) for one in found]
            created, running = (sum(count.get(what, 0) for count in counts) for what in ("desired", "ready"))
            out.log(f"{running} of {trial.shards * REPLICAS} replicas are ready, {created} have been created")
        return all(map(is_ready, found))

    if not wait_until(ready, timeout=trial.timeout, interval=CHECKS):
        raise ClusterError(f"{trial.shards} shards are not Ready within {trial.timeout:g} s")


def heard(site: Site, resource: Manifest) -> float:
    """Seconds until the operator has taken note of a new spec, when it has most to do."""
    name, namespace = resource["metadata"]["name"], resource["metadata"]["namespace"]

    def first_shard_has_a_status() -> bool:
        return any(shard.get("status") for shard in site.cluster.get("csi", "-n", namespace)["items"])

    site.wait("the first shards are being created", first_shard_has_a_status, timeout=600)
    began = time.monotonic()
    site.apply(patched(resource, rollout__stepTimeout="16m"))

    def noted() -> bool:
        found = site.cluster.get("ba", name, "-n", namespace)
        return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])

    site.wait("the new spec is heard", noted, timeout=600)
    return time.monotonic() - began


def corrected(site: Site, pipeline: str, number: int) -> float:
    """Seconds until a shard that another user has suspended is as the pipeline has it."""
    shard = ("csi", f"{pipeline}-{number}", "-n", pipeline)
    began = time.monotonic()
    site.cluster.kubectl("patch", *shard, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    site.wait(f"shard {number} is corrected", lambda: not site.cluster.get(*shard)["spec"].get("suspend"))
    return time.monotonic() - began


def resynced(site: Site, operator: OperatorProcess, shards: int) -> float:
    began, due = time.monotonic(), reconciled(operator) + shards
    site.wait("every shard was reconciled once more", lambda: reconciled(operator) >= due, timeout=1800)
    return time.monotonic() - began


def restarted(site: Site, trial: Trial) -> tuple[float, int]:
    """Of another operator: seconds until it has caught up, and what it wrote until then."""
    began, mark = time.monotonic(), site.cluster.audit.mark()
    with site.operator("", "--resync", trial.resync) as operator:
        site.wait(
            "the new operator has caught up",
            lambda: reconciled(operator) >= trial.shards and reading(operator, "queue_overdue_seconds") < ON_TIME,
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


if __name__ == "__main__":
    typer.run(main)
