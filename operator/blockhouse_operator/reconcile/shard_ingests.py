"""Keep the ClickHouseShardIngests of a pipeline as it describes them, in fields that it leaves at their defaults too.

Server-side apply leaves alone what another manager added: `kubectl patch csi ... suspend: true` would stay, and the
shard would load nothing. All of a shard's spec is the pipeline's, so one that differs after an apply is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence

import structlog

from blockhouse.errors import Permanent
from blockhouse_operator.adapters.kinds import SHARD_INGEST, Object
from blockhouse_operator.adapters.packed import PackedObjects
from blockhouse_operator.adapters.refusals import Unproven
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import BlockAggregator, InvalidSpec, parse_shard_ingest, shard_status
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.decide.pipeline import ShardState
from blockhouse_operator.decide.unchanged import differences, status_holds
from blockhouse_operator.desired.aggregator import shard_ingest
from blockhouse_operator.reconcile.children import Applied, apply_children
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)

APPLYING_SECONDS = 10.0
"""For so long one reconcile writes shards: then the spec is read again, for it may ask for something else by now."""
TOGETHER = 50
"""Shards whose manifests are there at the same time: those of thousands take hundreds of megabytes."""


class ShardIngests:
    """Those of all pipelines. One that was as described is not compared again until it or its pipeline changes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Hashable, ShardState]] = {}
        self._left: dict[str, frozenset[str]] = {}
        """Of each pipeline, as `Applied` names them."""

    def due(self, pipeline: BlockAggregator, shards: PackedObjects) -> list[int]:
        """Numbers of those that are to be compared."""
        return [number for number in range(pipeline.spec.shards) if self._state(pipeline, number, shards) is None]

    async def write(
        self, services: Services, pipeline: BlockAggregator, due: Sequence[int], shards: PackedObjects, applied: Applied
    ) -> None:
        """Write these shards, by the spec alone, for APPLYING_SECONDS at most. Those that were left before come first:
        one that is refused keeps no other waiting."""
        left, until = self._left.get(pipeline.uid, frozenset()), services.clock() + APPLYING_SECONDS
        order = sorted(due, key=lambda number: " ".join(_place(pipeline, number)) not in left)
        for at in range(0, len(order), TOGETHER):
            numbers = order[at : at + TOGETHER]
            if services.clock() > until:
                applied.left += [" ".join(_place(pipeline, number)) for number in numbers]
                continue
            made = [shard_ingest(pipeline, number) for number in numbers]
            about = (made, shards, pipeline.owners(), lambda: services.clock() > until)
            applied.add(await apply_children(services.kubernetes, *about, alone=True))
            await self._restore(services, pipeline, numbers, shards, applied)
        self._left[pipeline.uid] = frozenset(applied.left)

    async def _restore(
        self,
        services: Services,
        pipeline: BlockAggregator,
        numbers: Sequence[int],
        shards: PackedObjects,
        applied: Applied,
    ) -> None:
        """Replace the spec of each of those shards that differs although the apply found nothing to write. It is
        replaced as it was seen, or not at all: so not all of them have to be read again for one that another changed.
        Raises Unproven where one has changed since the watches reported it."""
        touched = {*applied.written, *applied.ending, *applied.left}
        for number in numbers:
            await asyncio.sleep(0)  # the lease has to be renewed meanwhile
            place = _place(pipeline, number)
            live = shards.get(place)
            if live is None or " ".join(place) in touched:
                continue
            changed = _changed(pipeline, number, live)
            if changed:
                await _replace_spec(services, pipeline, number, live, changed)
                applied.written.append(" ".join(place))

    async def states(self, pipeline: BlockAggregator, shards: PackedObjects, applied: Applied) -> list[ShardState]:
        """Every shard of the spec. The status of one that was written in this reconcile is about its spec of before,
        and so is that of one that was left and differs: an operator that has just started leaves many that do not."""
        found = []
        whole = not applied.refused and not applied.taken
        touched = {*applied.written, *applied.ending, *applied.left} if whole else None
        written, left = set(applied.written), set(applied.left)
        for number in range(pipeline.spec.shards):
            place = _place(pipeline, number)
            state = self._state(pipeline, number, shards)
            if state is None:
                await asyncio.sleep(0)  # the lease has to be renewed meanwhile
                name, live = " ".join(place), shards.get(place)
                differs = name in left and live is not None and bool(_changed(pipeline, number, live))
                state = _state_of(pipeline, number, live, behind=name in written or differs)
                if place in shards and touched is not None and " ".join(place) not in touched:
                    self._known[pipeline.namespace, place[1]] = (_version(pipeline, shards, place), state)
            found.append(state)
        return found

    async def observed(self, pipeline: BlockAggregator, shards: PackedObjects) -> list[ShardState]:
        """Every shard of the spec, left as it is: one that differs from its pipeline is behind."""
        found = []
        for number in range(pipeline.spec.shards):
            await asyncio.sleep(0)  # the lease has to be renewed meanwhile
            live = shards.get(_place(pipeline, number))
            differs = live is not None and bool(_changed(pipeline, number, live))
            found.append(_state_of(pipeline, number, live, behind=differs))
        return found

    def _state(self, pipeline: BlockAggregator, number: int, shards: PackedObjects) -> ShardState | None:
        place = _place(pipeline, number)
        version, state = self._known.get((pipeline.namespace, place[1]), (None, None))
        return state if place in shards and version == _version(pipeline, shards, place) else None


def given_spec(shards: PackedObjects) -> ClickHouseShardIngestSpec | None:
    """What the first shard was given; None where there is none that can be read."""
    for place in sorted(shards):
        try:
            return parse_shard_ingest(shards[place]).spec
        except InvalidSpec:
            continue
    return None


def _place(pipeline: BlockAggregator, number: int) -> tuple[str, str]:
    return SHARD_INGEST.name, names.shard_ingest(pipeline.name, number)


def _version(pipeline: BlockAggregator, shards: PackedObjects, place: tuple[str, str]) -> Hashable:
    """Changes whenever the shard does, or what the pipeline makes of it: an annotation changes no generation."""
    desired = (pipeline.uid, pipeline.generation, pipeline.annotations.get(labels.RESTART, ""))
    return desired, pipeline.files, pipeline.secrets_hash, shards.version(place)


def _state_of(pipeline: BlockAggregator, number: int, live: Object | None, *, behind: bool) -> ShardState:
    if live is None:
        return ShardState(number, shard_status({}), current=False)
    status = shard_status(live)
    current = not behind and status.observed_generation == live["metadata"].get("generation")
    return ShardState(
        number, status, current=current, holds=not current and status_holds(resolve(pipeline, number), status)
    )


async def _replace_spec(
    services: Services, pipeline: BlockAggregator, number: int, live: Object, changed: Sequence[str]
) -> None:
    shown = ", ".join(changed[:5])
    spec = shard_ingest(pipeline, number)["spec"]
    try:
        await services.kubernetes.replace_spec(live, spec, why=f"changed by another manager: {shown}")
    except Permanent as error:
        if services.fresh:
            raise
        raise Unproven(f"shard {names.shard_ingest(pipeline.name, number)} is another one by now: {error}") from error
    await services.kubernetes.emit(
        live,
        warning=True,
        reason="DriftReverted",
        message=f"{shown} was changed by hand and is restored: change BlockAggregator {pipeline.name} instead",
        at=services.now(),
    )


def _changed(pipeline: BlockAggregator, number: int, live: Object) -> tuple[str, ...]:
    try:
        found = parse_shard_ingest(live).spec
    except InvalidSpec as error:
        return tuple(problem.field for problem in error.problems)
    return differences(resolve(pipeline, number), found)
