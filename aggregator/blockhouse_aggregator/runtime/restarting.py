"""Whether rollouts want this aggregator to restart, and the restart itself: an orderly end, for whoever runs the
container starts it again. It decides nothing about other replicas: whose turn it is, is the operator's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from blockhouse_aggregator.runtime.ports import Restarts

log = structlog.get_logger(__name__)


class Restarting:
    """Runs on the event loop. `end(why)` begins the orderly end of the process."""

    def __init__(self, restarts: Restarts, end: Callable[[str], None]) -> None:
        self._restarts = restarts
        self._end = end
        self._seen = 0
        self._wanted = 0

    @property
    def page(self) -> Mapping[str, Any]:
        """The part of the status page: the number of the last demand, and the one known at the start."""
        return {"wanted": self._wanted, "seen": self._seen}

    async def start(self) -> None:
        """What is demanded by now is done by this start. Raises Retryable."""
        self._seen = self._wanted = (await self._restarts.latest()).number

    async def refresh(self) -> None:
        """Look for a new demand. Raises Retryable."""
        self._wanted = max(self._wanted, (await self._restarts.latest()).number)

    async def demand(self, rollout: str) -> int:
        """Demand that every aggregator of the shard that runs now restarts; returns the number. Raises Retryable."""
        self._wanted = max(self._wanted, (await self._restarts.add(rollout)).number)
        log.info("rollout.restart_demanded", rollout=rollout, number=self._wanted)
        return self._wanted

    def restart(self, number: int) -> bool:
        """End, unless this process was started after demand `number`; returns whether it ends. May be repeated."""
        if self._seen >= number:
            return False
        self._end(f"demand {number} to restart")
        return True
