"""What a reconcile works with: the adapters, the zones this operator serves, the time. Made once at the edge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.errors import Retryable
from blockhouse_operator.adapters.clickhouse_http import ClickHouseHttp
from blockhouse_operator.adapters.endpoints import Endpoints
from blockhouse_operator.adapters.ensemble import Ensemble
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.kubernetes import Kubernetes
from blockhouse_operator.adapters.namespaces import Namespaces
from blockhouse_operator.adapters.pipeline_http import PipelineHttp
from blockhouse_operator.adapters.refusals import Conflict, Unproven
from blockhouse_operator.adapters.shared_objects import SharedObjects
from blockhouse_operator.desired.credentials import Credentials
from blockhouse_operator.reconcile.patience import bounded
from blockhouse_operator.reconcile.pause import Paused, Pauses, Permit
from blockhouse_operator.reconcile.quorums import EnsembleQuorums

TROUBLE_SECONDS = 30.0
"""A server that did not answer is not asked again by other reconciles for so long."""
ANSWER_SECONDS = 300.0
"""Far longer than anything that is asked takes. Clients have limits of their own, but not in every call (kazoo's), and
all other reconciles wait for one that asks the same server."""


Result = TypeVar("Result")


class Troubles:
    """Which servers did not answer a moment ago: one dead server must not cost each shard a time-out."""

    def __init__(self, clock: Callable[[], float], *, longest_answer: float = ANSWER_SECONDS) -> None:
        self._clock = clock
        self._longest_answer = longest_answer
        self._known: dict[str, tuple[float, Retryable]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def lock(self, server: str) -> asyncio.Lock:
        """One reconcile at a time talks to a server of which it is not known whether it answers."""
        return self._locks.setdefault(server, asyncio.Lock())

    def raise_known(self, server: str) -> None:
        """Raise what was raised a moment ago."""
        since, error = self._known.get(server, (float("-inf"), None))
        if error is not None and self._clock() - since < TROUBLE_SECONDS:
            raise error

    def note(self, server: str, error: Retryable | None) -> None:
        """Remember that a server did not answer, and when; None forgets it."""
        if error is None:
            self._known.pop(server, None)
        else:
            self._known[server] = (self._clock(), error)

    async def ask(self, server: str, request: Callable[[], Awaitable[None]]) -> None:
        """Send a request unless the server is known not to answer; remember how it went. Raises Retryable."""
        limit = self._longest_answer
        silent = Retryable(f"{server} has not answered for {limit:g} s, nor has its client timed out", after=2.0)
        async with self.lock(server):
            self.raise_known(server)
            try:
                await bounded(request(), limit, silent)
            except Retryable as error:
                self.note(server, error)
                raise
            self.note(server, None)


class Ensembles:
    """The ZooKeeper ensembles in use, one client each, made when first needed."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._known: dict[tuple[ZooKeeper, str], Ensemble] = {}
        self._quorums: dict[Ensemble, EnsembleQuorums] = {}

    def of(self, config: ZooKeeper) -> Ensemble:
        """The client for these settings and the password of this moment. `config.root` is of no account."""
        config = config.model_copy(update={"root": ""})
        key = (config, config.password.read() if config.password else "")
        if key not in self._known:
            self._known[key] = Ensemble(config, self._fence)
        return self._known[key]

    def quorums(self, ensemble: Ensemble, clock: Callable[[], float], seconds: float) -> EnsembleQuorums:
        """What is known of the ensemble's quorums: one observation for all shards, which counts for `seconds`."""
        if ensemble not in self._quorums:
            self._quorums[ensemble] = EnsembleQuorums(ensemble, clock, seconds)
        return self._quorums[ensemble]

    def close(self) -> None:
        """End all sessions."""
        for ensemble in self._known.values():
            ensemble.close()


@dataclass(frozen=True)
class Services:
    """`zones` of None serves all. `secret` makes a new random secret. `clock` is monotonic, `wall` the time of day."""

    kubernetes: Kubernetes
    http: PipelineHttp
    clickhouse: ClickHouseHttp
    endpoints: Endpoints
    ensembles: Ensembles
    fence: Fence
    troubles: Troubles
    folder: Path
    clock: Callable[[], float]
    wall: Callable[[], datetime]
    secret: Callable[[], str]
    fresh: bool = True
    """Whether reads are from the API server alone; see `by_watches`."""
    zones: frozenset[str] | None = None
    namespaces: Namespaces = field(default_factory=Namespaces)
    resync: float = 60.0
    dry_run: bool = False
    release: str | None = None
    """Namespace and name of the lease that its leader holds: the same for all operators of a release; None for a
    process that leads without asking."""
    rollout_locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    busy: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)
    """By namespace and name of a pipeline: which of its shards were being changed when they were counted, and when."""
    waiting: dict[str, dict[str, None]] = field(default_factory=dict)
    """By namespace and name of a pipeline: which of its shards wait until others are changed, in their order."""
    leaving: dict[str, frozenset[str]] = field(default_factory=dict)
    """By namespace and name of a pipeline: which of its shards were not in its spec any more when that was read."""
    remembered: dict[str, Credentials] = field(default_factory=dict, repr=False)
    """Credentials of pipelines as they were last, by namespace and name: a Secret that is lost is created again."""
    rotations: dict[str, tuple[object, float]] = field(default_factory=dict, repr=False)
    """By namespace and name of a pipeline, and of what: the step of a rotation, and since when it has been seen."""

    pauses: Pauses = field(default_factory=Pauses)
    """Which pipelines are paused."""

    @cached_property
    def objects(self) -> SharedObjects:
        """Secrets and ConfigMaps, read once for all shards."""
        return SharedObjects(self.kubernetes, self.clock, self.resync)

    @cached_property
    def by_watches(self) -> Services:
        """The same with `Kubernetes.by_watches`."""
        other = copy(self)  # everything else is shared
        vars(other).update(objects=self.objects, kubernetes=self.kubernetes.by_watches(), fresh=False)
        return other

    def permitted(self, namespace: str, pipeline: str) -> tuple[Services, Permit]:
        """The same, by which nothing but a status is written once the pipeline is paused; and what allows other writes
        than those to the API server, which raises Paused."""
        permit = Permit(self.pauses, self.kubernetes, namespace, pipeline, self.clock)
        other = copy(self)
        vars(other).update(objects=self.objects, kubernetes=self.kubernetes.permitted(permit))
        return other, permit

    def must_be_fresh(self) -> None:
        """Raise Unproven where what was decided may be by old reports of a watch: to be asked before every step."""
        if not self.fresh:
            raise Unproven("not decided by what the API server answers now")

    def now(self) -> str:
        """RFC 3339, in seconds, as Kubernetes writes times."""
        return self.wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def waited(self, place: str, step: object) -> float:
        """Seconds for which this process has seen a rotation at its present step; a new leader begins to count."""
        now = self.clock()
        known, since = self.rotations.get(place, (step, now))
        self.rotations[place] = (step, since if known == step else now)
        return now - self.rotations[place][1]

    def rollout_lock(self, namespace: str, pipeline: str) -> asyncio.Lock:
        """Held while it is counted how many shards restart and one more is noted."""
        return self.rollout_locks.setdefault(f"{namespace}/{pipeline}", asyncio.Lock())


async def proven(services: Services, reconcile: Callable[[Services], Awaitable[Result]]) -> Result:
    """What a reconcile gives by what the watches reported. Where it finds something to change that is there, it begins
    again, and all is decided by what the API server answers now: an old report must never take anything down. So it
    does where it finds that its pipeline was paused meanwhile: then it only observes."""
    try:
        return await reconcile(services.by_watches)
    except (Unproven, Conflict, Paused):
        return await reconcile(services)
