"""The operator's table keeper against real aggregators, without a Kubernetes: what it decides needs none.

Nothing of it survives a turn but what a status would keep, so `forgetful` it is an operator that is killed after every
single step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.pipeline_http import PipelineHttp
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api.parts import Table
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import ClickHouseShardIngest, Resource
from blockhouse_operator.api.status import ClickHouseShardIngestStatus, TableStatus
from blockhouse_operator.decide.seen import PodSeen, ReplicaSeen, ShardSeen
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.tables import TableKeeper
from e2e.pipeline import Pipeline
from tests.unit.operator.resources import pipeline as resource


@dataclass(frozen=True)
class _Endpoints:
    """Where the aggregators of a pipeline of processes are."""

    pipeline: Pipeline

    def aggregator(self, replica: str, namespace: str) -> str:
        return self.pipeline.aggregators[replica].url


@dataclass
class SchemaOperator:
    """Turns of one shard's tables. `ddl` is what the spec declares, by table."""

    pipeline: Pipeline
    ddl: dict[str, str]
    forgetful: bool = False
    timeout: str = "15m"
    history: list[tuple[float, TableStatus]] = field(default_factory=list)
    """Every status that differs from the one before it, with the monotonic time."""
    generation: int = 1

    def run(self, wanted: Iterable[str] = ("AsSpecified",), *, within: float = 180) -> dict[str, TableStatus]:
        """Turn until every table's state is among `wanted`; returns the last statuses."""
        return asyncio.run(self._run(tuple(wanted), within))

    async def _run(self, wanted: tuple[str, ...], within: float) -> dict[str, TableStatus]:
        fence = Fence(1e9)
        fence.renewed(fence.now())
        http = PipelineHttp(fence)
        keeper, end = TableKeeper(self._services(http, fence)), time.monotonic() + within
        known: tuple[TableStatus, ...] = ()
        try:
            while time.monotonic() < end:
                if self.forgetful:
                    keeper = TableKeeper(self._services(http, fence))
                shard = self._shard(known)
                seen = await self._look(shard, http)
                known = await keeper.keep(shard, seen, cast(Contents, None), "")
                self._tell(known)
                if {table.state for table in known} <= set(wanted):
                    return {table.name: table for table in known}
                await asyncio.sleep(0.2)  # the operator's own pace between two turns
        finally:
            await http.close()
        raise AssertionError(f"not {wanted} after {within} s: {[(t.name, t.state, t.message) for t in known]}")

    def held_seconds(self, table: str) -> float:
        """How long the table was held in the last change, as the aggregators were asked."""
        told = [(at, status.message) for at, status in self.history if status.name == table]
        held = [at for at, message in told if message.startswith("holding it")]
        free = [at for at, message in told if message.startswith("releasing it")]
        return free[-1] - held[-1]

    def _services(self, http: PipelineHttp, fence: Fence) -> Services:
        unused: Any = None
        return Services(
            kubernetes=unused,
            http=http,
            endpoints=cast(Any, _Endpoints(self.pipeline)),
            ensembles=unused,
            fence=fence,
            troubles=unused,
            folder=Path("/nonexistent"),
            clock=time.monotonic,
            wall=lambda: datetime.now(UTC),
            secret=unused,
        )

    def _shard(self, known: tuple[TableStatus, ...]) -> ClickHouseShardIngest:
        made = resource(
            ("spec.zones", [{"name": "dc-a", "replicas": len(self.pipeline.aggregators)}]),
            ("spec.kafka.topic.partitions", self.pipeline.spec.partitions),
        )
        spec = resolve(made, 0)
        topic = spec.kafka.topic.model_copy(
            update={"name": self.pipeline.spec.topic, "partitions": self.pipeline.spec.partitions}
        )
        names = list(self.pipeline.kafka)
        clusters = tuple(
            cluster.model_copy(update={"name": name}) for cluster, name in zip(spec.kafka.clusters, names, strict=False)
        )
        spec = spec.model_copy(
            update={
                "kafka": spec.kafka.model_copy(update={"topic": topic, "clusters": clusters}),
                "tables": tuple(Table(name=name, ddl=ddl) for name, ddl in self.ddl.items()),
                "rollout": spec.rollout.model_copy(update={"step_timeout": self.timeout}),
            }
        )
        status = ClickHouseShardIngestStatus(tables=known, observed_generation=self.generation)
        return Resource(
            kind="ClickHouseShardIngest",
            name="events-0",
            namespace="test",
            uid="uid",
            generation=self.generation,
            spec=spec,
            status=status,
        )

    async def _look(self, shard: ClickHouseShardIngest, http: PipelineHttp) -> ShardSeen:
        replicas = []
        for name, aggregator in self.pipeline.aggregators.items():
            seen, silence = None, "it is dead"
            if aggregator.alive:
                try:
                    seen = await http.aggregator(aggregator.url, "")
                except Retryable as error:
                    silence = str(error)
            pod = PodSeen(ready=aggregator.alive)
            replicas.append(ReplicaSeen(name, "dc-a", scale=1, pod=pod, aggregator=seen, silence=silence))
        return ShardSeen(replicas=tuple(replicas))

    def _tell(self, tables: tuple[TableStatus, ...]) -> None:
        last = {status.name: status for _, status in self.history}
        now = time.monotonic()
        self.history += [(now, table) for table in tables if last.get(table.name) != table]
