"""Markers and decisions of streams: the product's own, over a simulated ensemble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from blockhouse.errors import Retryable
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decisions, StreamMarker, StreamMarkers
from blockhouse_aggregator.runtime.adapters import StoredMarkers
from tests.simulation.zookeeper import ZkSession


class _SimThreads:
    """What is asked of the ensemble takes a trip there and back, when it is reachable at all."""

    def __init__(self, session: ZkSession) -> None:
        self._session = session

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        ensemble = self._session.ensemble
        await asyncio.sleep(ensemble.world.trip(self._session.zone, 0))
        if not ensemble.reachable(self._session):
            raise Retryable("zookeeper: unavailable", after=0.5)
        answer = function(*arguments)
        await asyncio.sleep(ensemble.world.trip(self._session.zone, 0))
        return answer

    def close(self) -> None: ...


class SimMarkers(StoredMarkers):
    """The product's, over simulated nodes."""

    def __init__(self, session: ZkSession, replica: str, now_ms: Callable[[], int]) -> None:
        stands_in: Any = session
        self._markers = StreamMarkers(stands_in)
        self._decisions = Decisions(stands_in)
        self._replica = replica
        self._now_ms = now_ms
        self._threads: Any = _SimThreads(session)
        self._ensemble = session.ensemble

    async def claim_restart(self, stream: StreamId, seen: StreamMarker | None, owner: str, accepted: str) -> None:
        self._ensemble.on_write("claim", self._replica, stream)
        await super().claim_restart(stream, seen, owner, accepted)

    async def mark_started(
        self, stream: StreamId, metadata: Metadata, history: str, *, afresh: bool, claimed_by: str
    ) -> None:
        self._ensemble.on_write("mark", self._replica, stream)
        await super().mark_started(stream, metadata, history, afresh=afresh, claimed_by=claimed_by)
