"""Pipelines whose reconciliation is paused: nothing of them is written but their status.

That a pipeline is paused is remembered for all its shards, and never believed where something is to be written: its
spec is then read again, for what a process or a watch knows may be older than the wish that nothing be touched.
"""

from __future__ import annotations

from collections.abc import Callable

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, Object
from blockhouse_operator.adapters.kubernetes import Kubernetes

PERMIT_SECONDS = 5.0
"""For so long a reconcile that makes thousands of objects writes by one read of the spec."""


class Paused(Retryable):
    """Nothing was written: reconciliation of the pipeline is paused."""


class Pauses:
    """Which pipelines are paused, as their specs were last read."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], bool] = {}

    def note(self, live: Object) -> bool:
        """Take note of a BlockAggregator that was read; returns whether it was paused, or is so no longer, since it was
        read before."""
        place, paused = _place(live), bool((live.get("spec") or {}).get("paused"))
        before = self._known.get(place, paused)
        self._known[place] = paused
        return before != paused

    def forget(self, namespace: str, pipeline: str) -> None:
        """The pipeline is gone, or going."""
        self._known.pop((namespace, pipeline), None)

    async def read(self, kubernetes: Kubernetes, namespace: str, pipeline: str) -> bool:
        """Whether it is paused, by what the API server answers now; one that is gone or going is not: nothing keeps its
        children from following it."""
        live = await kubernetes.get(BLOCK_AGGREGATOR, namespace, pipeline)
        if live is None or live["metadata"].get("deletionTimestamp"):
            self.forget(namespace, pipeline)
            return False
        self.note(live)
        return self._known[namespace, pipeline]

    async def of(self, kubernetes: Kubernetes, namespace: str, pipeline: str) -> bool:
        """Whether it is paused, as it was last read; read now where it never was."""
        known = self._known.get((namespace, pipeline))
        return known if known is not None else await self.read(kubernetes, namespace, pipeline)


class Permit:
    """Lets one reconcile write while its pipeline is not paused."""

    def __init__(
        self, pauses: Pauses, kubernetes: Kubernetes, namespace: str, pipeline: str, clock: Callable[[], float]
    ) -> None:
        self._pauses = pauses
        self._kubernetes = kubernetes
        self._place = (namespace, pipeline)
        self._clock = clock
        self._asked_at = float("-inf")

    async def __call__(self) -> None:
        """Raises Paused."""
        now = self._clock()
        if now - self._asked_at < PERMIT_SECONDS:
            return
        if await self._pauses.read(self._kubernetes, *self._place):
            raise Paused(f"{'/'.join(self._place)} is paused: nothing is written", after=1.0)
        self._asked_at = now


def _place(live: Object) -> tuple[str, str]:
    return live["metadata"]["namespace"], live["metadata"]["name"]
