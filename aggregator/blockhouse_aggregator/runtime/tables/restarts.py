"""Whether a rollout demands that this aggregator restarts, and the restart itself: an orderly end, after which the
container is started again. It decides nothing about other replicas: their order is the operator's to decide.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from blockhouse.contract.aggregator import RestartStatus
from blockhouse_aggregator.runtime.ports import Restarts

log = structlog.get_logger(__name__)


class RestartRequests:
    """Runs on the event loop. `end(why)` begins the orderly end of the process."""

    def __init__(self, restarts: Restarts, end: Callable[[str], None]) -> None:
        self._restarts = restarts
        self._end = end
        self._seen = 0
        self._demanded = 0

    @property
    def status(self) -> RestartStatus:
        """The number of the last demand, and of the one known at the start."""
        return RestartStatus(demanded=self._demanded, seen=self._seen)

    async def start(self) -> None:
        """What is demanded by now is done by this start. Raises Retryable."""
        self._seen = self._demanded = (await self._restarts.latest()).number

    async def refresh(self) -> None:
        """Look for a new demand. Raises Retryable."""
        self._demanded = max(self._demanded, (await self._restarts.latest()).number)

    async def demand(self, rollout: str) -> int:
        """Demand that every aggregator of the shard that runs now restarts; returns the number. Raises Retryable."""
        self._demanded = max(self._demanded, (await self._restarts.add(rollout)).number)
        log.info("rollout.restart_demanded", rollout=rollout, number=self._demanded)
        return self._demanded

    def restart(self, number: int) -> bool:
        """End, unless this process was started after demand `number`; returns whether it ends. May be repeated."""
        if self._seen >= number:
            return False
        self._end(f"demand {number} to restart")
        return True
