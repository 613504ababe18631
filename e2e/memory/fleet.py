"""An operator whose whole world is in memory: a pipeline of many shards, all well, and every request counted."""

from __future__ import annotations

import asyncio
import base64
import copy
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.contract.rollouts import declaration_digest
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.model import PartitionState
from blockhouse.fleet.topics import ClusterSeen, CreateTopic, TopicStep
from blockhouse.placement.model import Broker, TopicPartition
from blockhouse_operator.adapters.endpoints import Endpoints
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.figures import Figures
from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, SHARD_INGEST
from blockhouse_operator.adapters.kubernetes import Kubernetes
from blockhouse_operator.adapters.pipeline_http import AdminLogin
from blockhouse_operator.adapters.watch import Watch
from blockhouse_operator.api.labels import CHILD
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import BlockAggregator, parse_block_aggregator
from blockhouse_operator.api.status import VerifierStatus
from blockhouse_operator.decide.replication import ReplicaOfTable
from blockhouse_operator.decide.seen import AggregatorSeen, Gap, StreamSeen, TableSeen
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.handlers.loop import WATCHED
from blockhouse_operator.reconcile import cluster_topics
from blockhouse_operator.reconcile.pipeline import PipelineReconciler
from blockhouse_operator.reconcile.scope import Scope
from blockhouse_operator.reconcile.services import Ensembles, Services, Troubles
from blockhouse_operator.reconcile.shard import ShardReconciler
from e2e.memory.api_server import ApiServer
from e2e.scenarios.resources import companions, example

NAMESPACE, NAME = "scale", "scale"
BROKERS = {number: Broker(number, f"rack-{number % 3}") for number in range(6)}


class Aggregators:
    """Every aggregator consumes its part of its shard's streams, and its tables are as declared. `silent` are replicas
    whose aggregator does not answer. `asked` and `compared` are requests: for a status, and to compare a table."""

    def __init__(self, streams: Mapping[str, tuple[StreamSeen, ...]], tables: Sequence[str]) -> None:
        self.streams = streams
        self._tables = tables
        self._declared: dict[str, dict[str, str]] = {}
        self.silent: set[str] = set()
        self.asked: list[str] = []
        self.compared: list[str] = []
        self.restarts: list[str] = []

    async def aggregator(self, base: str, login: AdminLogin, **_: bool) -> AggregatorSeen:
        assert login.tokens
        replica = base.rpartition("/")[2]
        self.asked.append(replica)
        if replica in self.silent:
            raise Retryable("it does not answer")
        known = self._declared.get(replica, {})
        tables = tuple(TableSeen(name, schema_revision=1, as_declared=known.get(name, "")) for name in self._tables)
        return AggregatorSeen(ready=True, streams=self.streams.get(replica, ()), tables=tables)

    async def gap(self, base: str, _: AdminLogin, table: str, ddl: str) -> Gap:
        replica = base.rpartition("/")[2]
        self.compared.append(replica)
        self._declared.setdefault(replica, {})[table] = declaration_digest(ddl)
        return Gap(True)

    async def restart(self, base: str, *_: object) -> None:
        self.restarts.append(base)

    async def verdict(self, *_: str) -> VerifierStatus:
        return VerifierStatus(verdict="clean")


class Ensemble(Ensembles):
    """A ZooKeeper that answers, the same for all. `asked` counts conversations."""

    def __init__(self) -> None:
        super().__init__(OpenFence())
        self.asked = 0

    def of(self, *_: object) -> Any:
        return self

    def quorum_waits(self, *_: object) -> dict[str, float]:
        self.asked += 1
        return {}

    def replicas_of_tables(self, *_: object) -> dict[str, dict[str, ReplicaOfTable]]:
        """No volume was lost: what a table lacks, nothing is registered for."""
        return {}


class Kafka:
    """Topics by cluster; `observations` counts how often a whole cluster was read."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, CreateTopic]] = {}
        self.observations = 0

    def observe(self, cluster: KafkaCluster, topics: Sequence[str], *_: object) -> ClusterSeen:
        self.observations += 1
        there = self.topics.get(cluster.name, {})
        partitions = {
            TopicPartition(name, number): PartitionState(tuple(replicas), replicas[0], frozenset(replicas))
            for name, made in there.items()
            for number, replicas in enumerate(made.sets or ())
        }
        return ClusterSeen(BROKERS, partitions, {name: dict(there[name].config) for name in topics if name in there})

    def carry_out(self, cluster: KafkaCluster, steps: Iterable[TopicStep], _fence: object) -> dict[str, Permanent]:
        for step in steps:
            assert isinstance(step, CreateTopic)
            self.topics.setdefault(cluster.name, {})[step.topic] = step
        return {}

    @contextmanager
    def here(self) -> Iterator[None]:
        with (
            patch.object(cluster_topics, "observe_topics", self.observe),
            patch.object(cluster_topics, "carry_out", self.carry_out),
        ):
            yield


def pipeline_of(shards: int) -> dict[str, Any]:
    """The example with two Kafka clusters and four replicas a shard, of that many shards, without passwords."""
    found = copy.deepcopy(example())
    found["metadata"] |= {"name": NAME, "namespace": NAMESPACE}
    spec = found["spec"]
    spec["shards"] = shards
    spec["clickhouse"]["remoteServers"] = "Shard"
    for cluster in spec["kafka"]["clusters"]:
        cluster.pop("tls", None)
        cluster.pop("sasl", None)
    ensemble = {**spec["zookeeper"]["ensembles"][0], "shards": {"from": 0, "to": shards - 1}}
    spec["zookeeper"]["ensembles"] = [{key: value for key, value in ensemble.items() if key != "auth"}]
    return found


class Fleet:
    """One operator, without its queue: reconcile what is to be reconciled. Use inside `kafka.here()`."""

    def __init__(self, shards: int, folder: Path | None = None) -> None:
        self.shards = shards
        self.api = ApiServer()
        self.kafka = Kafka()
        self.woken: list[str] = []
        self.kinds = (*WATCHED, SHARD_INGEST)
        self.now = 1_000_000.0
        self.api.put(BLOCK_AGGREGATOR.plural, pipeline_of(shards), f"/apis/{BLOCK_AGGREGATOR.api_version}")
        for made in companions(NAMESPACE):
            plural = {"Secret": "secrets", "ConfigMap": "configmaps"}[made["kind"]]
            if "stringData" in made:
                made["data"] = {key: base64.b64encode(v.encode()).decode() for key, v in made["stringData"].items()}
            self.api.put(plural, made)
        self.folder = folder or Path(tempfile.mkdtemp(prefix="blockhouse-fleet-"))
        parsed = parse_block_aggregator(self.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
        self.http = Aggregators(_streams(parsed), [table.name for table in parsed.spec.tables])
        self.restart()

    def restart(self) -> None:
        """A new operator process, which knows nothing yet."""
        fence, secrets = OpenFence(), count(1)
        self.ensemble = Ensemble()
        services = Services(
            kubernetes=Kubernetes(cast(Any, self.api), fence, Figures()),
            http=cast(Any, self.http),
            clickhouse=cast(Any, None),
            endpoints=Endpoints(aggregator_template="http://in.memory/{replica}"),
            ensembles=cast(Any, self.ensemble),
            fence=fence,
            troubles=Troubles(lambda: self.now),
            folder=self.folder,
            clock=lambda: self.now,
            wall=lambda: datetime.fromtimestamp(self.now, UTC),
            secret=lambda: f"secret-{next(secrets)}",
        )
        self.serve(services)

    def serve(self, services: Services) -> None:
        """Reconcile by these services from now on."""
        self.services, scope = services, Scope(services)
        self.pipelines = PipelineReconciler(services, scope, lambda *_: None)
        self.reconciler = ShardReconciler(services, scope, lambda _, name: self.woken.append(name))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """While watches fill the operator's stores."""
        stores = self.services.kubernetes.stores
        watches = [
            Watch(cast(Any, self.api), stores.add(kind, None, {} if kind is SHARD_INGEST else CHILD, lambda: self.now))
            for kind in self.kinds
        ]
        tasks = [asyncio.create_task(watch.run(lambda *_: None)) for watch in watches]
        try:
            await self.caught_up()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def caught_up(self) -> None:
        """Until the watches have reported everything that has happened, and were heard at this moment."""
        for _ in range(100):
            await asyncio.sleep(0)
        self.api.bookmark()
        while not self.api.quiet:
            await asyncio.sleep(0)

    async def pipeline(self) -> float | None:
        return await self.pipelines.reconcile(NAMESPACE, NAME)

    async def shard(self, number: int) -> float | None:
        return await self.reconciler.reconcile(NAMESPACE, f"{NAME}-{number}")

    async def both(self) -> None:
        """Every resource once."""
        await self.caught_up()
        await self.pipeline()
        for number in range(self.shards):
            await self.shard(number)

    async def settle(self) -> None:
        """Until no shard has anything left to do."""
        await self.pipeline()
        await self.caught_up()
        for number in range(self.shards):
            for _ in range(60):
                if await self.shard(number) == self.services.resync:
                    break
                self.now += 1.0
            else:
                raise AssertionError(f"shard {number} does not settle: {self.status(number)}")
        await self.pipeline()

    def status(self, number: int) -> dict[str, Any]:
        found = self.api.of("clickhouseshardingests")[NAMESPACE, f"{NAME}-{number}"]
        return cast(dict[str, Any], found.get("status", {}))


def _streams(parsed: BlockAggregator) -> dict[str, tuple[StreamSeen, ...]]:
    """Of each shard every stream, given to its replicas in turn."""
    found: dict[str, tuple[StreamSeen, ...]] = {}
    for number in range(parsed.spec.shards):
        spec = resolve(parsed, number)
        replicas = [replica.name for replica in spec.replicas]
        for turn, stream in enumerate(expected_streams(spec)):
            replica = replicas[turn % len(replicas)]
            found[replica] = (*found.get(replica, ()), StreamSeen(stream, "CONSUME", drained=True))
    return found
