"""Reconciles of one shard's schema: what the operator does between a look and a status, without pods to make.

The decisions and the requests are the product's own; only Kubernetes is a `Record`, and a replica's pod is as ready as
its ClickHouse answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.kinds import SHARD_INGEST
from blockhouse_operator.adapters.pipeline_http import AdminLogin, PipelineHttp
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api.status import ClickHouseShardIngestStatus
from blockhouse_operator.decide.seen import PodSeen, ReplicaSeen, ShardSeen
from blockhouse_operator.decide.shard import plan_shard
from blockhouse_operator.reconcile.observe import ShardLook, begun_step_of
from blockhouse_operator.reconcile.report import as_json
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.steps import ShardSteps
from blockhouse_operator.reconcile.tables import TableKeeper
from e2e.rollouts.record import Record, Report
from e2e.rollouts.site import Address, Desired, Site, shard_of

PATIENCE = 2.0
"""Seconds for a ClickHouse to accept a connection."""


class ReportingHttp(PipelineHttp):
    """Reports each request that changes something before it is sent and when it has been answered."""

    def __init__(self, fence: Fence, report: Report) -> None:
        super().__init__(fence)
        self._report = report

    async def hold(self, base: str, login: AdminLogin, table: str, rollout: str) -> None:
        self._report("hold", "begun")
        await super().hold(base, login, table, rollout)
        self._report("hold", "done")

    async def apply(
        self, base: str, login: AdminLogin, table: str, ddl: str, rollout: str, *, restart: bool = False
    ) -> None:
        self._report("apply", "begun")
        await super().apply(base, login, table, ddl, rollout, restart=restart)
        self._report("apply", "done")

    async def restart(self, base: str, login: AdminLogin, demand: int) -> None:
        self._report("restart", "begun")
        await super().restart(base, login, demand)
        self._report("restart", "done")

    async def release(self, base: str, login: AdminLogin, table: str, rollout: str) -> None:
        self._report("release", "begun")
        await super().release(base, login, table, rollout)
        self._report("release", "done")


@dataclass(frozen=True)
class _Endpoints:
    replicas: Mapping[str, Address]

    def aggregator(self, replica: str, _namespace: str) -> str:
        return self.replicas[replica].url


class Reconciles:
    """An operator of one shard. Everything it must remember is in `record`. `close` it."""

    def __init__(self, site: Site, record: Record) -> None:
        fence = Fence(1e9)
        fence.renewed(fence.now())
        self._site = site
        self._record = record
        self._http = ReportingHttp(fence, record.report)
        unused: Any = None
        self._services = Services(
            kubernetes=cast(Any, record),
            http=self._http,
            clickhouse=unused,
            endpoints=cast(Any, _Endpoints(site.replicas)),
            ensembles=unused,
            fence=fence,
            troubles=unused,
            folder=Path("/nonexistent"),
            clock=time.monotonic,
            wall=lambda: datetime.now(UTC),
            secret=unused,
        )
        self._tables = TableKeeper()

    async def reconcile(self, desired: Desired) -> ClickHouseShardIngestStatus:
        """Look, take at most one step of each kind, write the status; returns it."""
        shard = shard_of(self._site, desired, self._record.status)
        seen = replace(await self._look(), begun=begun_step_of(shard, datetime.now(UTC)))
        # Empty: the admin APIs of this machine listen on loopback, where they ask for no token.
        contents = Contents(self._services.kubernetes, shard.namespace, self._services.folder)
        steps = ShardSteps(self._services, shard, {}, {}, ShardLook(seen), contents)
        taken = await steps.take(plan_shard(shard.spec, seen))
        shard = replace(shard, status=shard.status.model_copy(update={"rollout": taken.rollout}))
        tables = await self._tables.keep(self._services, shard, {}, seen, contents)
        update = {"tables": tables, "observed_generation": desired.generation}
        status = shard.status.model_copy(update=update)
        await self._record.apply_status(SHARD_INGEST, {}, as_json(status))
        return status

    async def close(self) -> None:
        await self._http.close()

    async def _look(self) -> ShardSeen:
        return ShardSeen(replicas=tuple(await asyncio.gather(*map(self._replica, self._site.replicas))))

    async def _replica(self, name: str) -> ReplicaSeen:
        address = self._site.replicas[name]
        aggregator, silence = None, ""
        try:
            aggregator = await self._http.aggregator(address.url, AdminLogin())
        except Retryable as error:
            silence = str(error)
        pod = PodSeen(ready=await _accepts(address))
        return ReplicaSeen(name, "main", scale=1, pod=pod, aggregator=aggregator, silence=silence)


async def _accepts(address: Address) -> bool:
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except OSError:  # a time-out is one too
        return False
    writer.close()
    return True
