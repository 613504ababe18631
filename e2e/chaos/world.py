"""Everything that runs in a chaos run, by the names faults use: servers, aggregators, their network and disks."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from e2e.chaos.clock import PROBE_TOPIC, WallClock, appended_at, library, sweep
from e2e.chaos.layout import pod_name, pod_of
from e2e.chaos.network import FIRST_GROUP, Endpoint, Network, SmallDisk
from e2e.chaos.scenario import DISK, Kind, Scenario
from e2e.kit.tables import TABLES, Table
from e2e.pipeline import AggregatorProcess, Pipeline, PipelineSpec, verifier_of
from e2e.stack import Stack, StackSpec
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.kafka import KafkaBroker
from e2e.stack.server import Server
from e2e.stack.stage import Stage
from e2e.stack.tables import create_replicated_table
from e2e.stack.zookeeper import ZooKeeperServer

LOADED: Sequence[Table] = tuple(table for table in TABLES if table.share and not table.late)
SETTINGS: dict[str, Any] = {
    "faults": {"enabled": True},
    "quorum": {"timeout": "6s"},
    "kafka": {"commitTimeout": "5s"},
    "handoverAfter": "5s",
    "shutdownBudget": "10s",
}
"""Time-outs short enough for a fault to be found out, and survived, within seconds."""
_DISK_BYTES = 12 << 30
"""Small parts take 80 KiB each and are kept for eight minutes after their merge: a long run holds 5 GiB of them."""


class World(Stage):
    """Real servers, shards of them with an aggregator per replica. A context manager: nothing outlives it.

    With `isolated` it runs inside `network.enter`, so that networks can be cut and a disk can be full.
    """

    def __init__(self, scenario: Scenario, folder: Path, *, isolated: bool) -> None:
        self.scenario = scenario
        self.folder = folder
        spec = StackSpec(
            kafka_clusters=2,
            shards=scenario.shards,
            replicas=scenario.replicas,
            clickhouse_zk_timeout_ms=6_000,
            clickhouse_log_level="debug",  # fetches and merges are logged at no higher level
            # Killed while it removes old parts, a server finds more on its disk than in ZooKeeper, and would not start.
            merge_tree={"replicated_max_ratio_of_wrong_parts": "1"},
        )
        self.stack = Stack(folder / "stack", spec)
        self.pipelines = [Pipeline(self.stack, folder, _shard(scenario, n)) for n in range(1, scenario.shards + 1)]
        self.verifier = verifier_of(*self.pipelines)
        self.servers = self._by_name()
        self.clocks = self._clocks()
        self.network: Network | None = None
        self.disk: SmallDisk | None = None
        if isolated:
            self.network = self._isolate()
            self.disk = SmallDisk(self.servers[DISK].folder / "data", _DISK_BYTES)
        self._exits = ExitStack()

    @property
    def aggregators(self) -> dict[str, AggregatorProcess]:
        """By pod: r1, r2 ... of the first shard, s2-r1 ... of the second."""
        return {
            pod_name(pipeline.spec.shard, number): aggregator
            for pipeline in self.pipelines
            for number, aggregator in enumerate(pipeline.aggregators.values(), start=1)
        }

    def members(self, name: str) -> list[str]:
        """Names of the processes that `name` stands for."""
        return self.scenario.layout.members(name)

    def aggregator(self, name: str) -> AggregatorProcess:
        return self.aggregators[pod_of(name)]

    def clock_of(self, name: str) -> float | None:
        """What a process of `clocks` holds for the time, in seconds since 1970; None while it does not answer."""
        server = self.servers[name]
        if isinstance(server, KafkaBroker):
            return appended_at(server.bootstrap)
        verdict = self.verifier.verdict()
        looked = [cluster.looked for cluster in verdict.coverage.values()] if verdict is not None else []
        return max((datetime.fromisoformat(text).timestamp() for text in looked if text), default=None)

    def start(self) -> None:
        if self.disk is not None:
            self.disk.mount()
            self._exits.callback(self.disk.unmount)
        if self.clocks:
            self._exits.callback(sweep)
        self._exits.callback(self.stack.close)
        self.stack.start()
        for table in LOADED:
            create_replicated_table(
                self.stack,
                table.name,
                table.sql_columns,
                order_by=table.order_by,
                settings={"replicated_deduplication_window": self.scenario.window},
            )
        for cluster in self.stack.kafka.values():
            if f"kafka-{cluster.name}" in self.clocks:
                cluster.create_topic(PROBE_TOPIC, partitions=1, config={"message.timestamp.type": "LogAppendTime"})
        self._exits.callback(self.verifier.kill)
        for pipeline in self.pipelines:
            self._exits.enter_context(pipeline)
            pipeline.create_topic()

    def close(self) -> None:
        if self.network is not None:
            self.network.repair_all()
        self._exits.close()
        shutil.rmtree(self.stack.folder, ignore_errors=True)

    def _by_name(self) -> dict[str, Server]:
        found: dict[str, Server] = {"zookeeper": self.stack.zookeeper, "verifier": self.verifier}
        found |= {f"kafka-{name}": cluster.brokers[0] for name, cluster in self.stack.kafka.items()}
        found |= {f"clickhouse-{pod_name(*id)}": server for id, server in self.stack.clickhouse.items()}
        found |= {f"aggregator-{pod}": process for pod, process in self.aggregators.items()}
        assert set(found) == set(self.scenario.layout.processes)
        return found

    def _clocks(self) -> dict[str, WallClock]:
        """Of those that the scenario is going to shift, if this machine can; all others run as they always do."""
        found = library()
        if found is None:
            return {}
        targets = {fault.target for fault in self.scenario.faults if fault.kind is Kind.SKEW}
        clocks = {name: WallClock(self.folder / "clocks" / name, found) for name in sorted(targets)}
        for name, clock in clocks.items():
            self.servers[name].variables = clock.variables
        return clocks

    def _isolate(self) -> Network:
        endpoints = {}
        for number, (name, server) in enumerate(sorted(self.servers.items()), start=FIRST_GROUP):
            server.group = number
            endpoints[name] = Endpoint(number, listens(server))
        return Network(endpoints)


def _shard(scenario: Scenario, number: int) -> PipelineSpec:
    """A topic and a group for each; the same tables."""
    return PipelineSpec(
        name="chaos",
        shard=number,
        topic=f"events-{number:02d}",
        partitions=scenario.replicas,
        overrides=SETTINGS,
    )


def listens(server: Server) -> tuple[int, ...]:
    """Ports on which others reach the server; none for an aggregator and the verifier, whose APIs are only ours."""
    match server:
        case KafkaBroker():
            return (server.port,)
        case ClickHouseServer():
            return server.listens
        case ZooKeeperServer():
            return (server.port,)
        case _:  # open: an aggregator, a verifier
            return ()
