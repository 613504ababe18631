"""A pipeline that Kubernetes cannot take is refused whole, with the field to change."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, Kind
from blockhouse_operator.reconcile.pause import Pauses
from blockhouse_operator.reconcile.pipeline import PipelineReconciler
from blockhouse_operator.reconcile.scope import Scope
from blockhouse_operator.reconcile.services import Services
from tests.unit.operator.resources import block_aggregator

MANY = (("spec.shards", 2050), ("spec.zookeeper.ensembles.0.shards", {"from": 0, "to": 2049}))


class StatusOnly:
    """An API server that has one pipeline and takes nothing but its status and Events."""

    def __init__(self, pipeline: dict[str, Any]) -> None:
        self.pipeline = pipeline
        self.conditions: dict[str, dict[str, Any]] = {}

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        assert kind == BLOCK_AGGREGATOR
        return self.pipeline

    async def apply_status(self, kind: Kind, live: object, status: dict[str, Any]) -> bool:
        self.conditions = {found["type"]: found for found in status["conditions"]}
        return True

    async def emit(self, about: object, **event: object) -> None:
        assert event["reason"] == "InvalidSpec"


async def test_a_list_of_servers_that_fits_into_no_secret_is_refused() -> None:
    kubernetes = StatusOnly(block_aggregator(*MANY))
    services: Any = SimpleNamespace(
        kubernetes=kubernetes, now=lambda: Services.now(services), resync=60.0, pauses=Pauses()
    )
    services.by_watches = services
    services.wall = lambda: datetime(2026, 1, 1, tzinfo=UTC)

    assert await PipelineReconciler(services, Scope(services), lambda *_: None).reconcile("data", "events") == 60.0

    assert kubernetes.conditions["Stalled"]["reason"] == "InvalidSpec"
    assert "spec.clickhouse.remoteServers: Full lists 8200 replicas" in kubernetes.conditions["Ready"]["message"]
