"""Keep the ClickHouseShardIngests of a pipeline as it describes them, in fields that it leaves at their defaults too.

Server-side apply leaves alone what another manager added: `kubectl patch csi ... suspend: true` would stay, and the
shard would load nothing. All of a shard's spec is the pipeline's, so one that differs after an apply is replaced.
"""

from __future__ import annotations

import asyncio

import structlog

from blockhouse_operator.adapters.kinds import SHARD_INGEST, Object
from blockhouse_operator.api import names
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import BlockAggregator, InvalidSpec, parse_shard_ingest
from blockhouse_operator.decide.pipeline import ShardState
from blockhouse_operator.decide.unchanged import differences, status_holds
from blockhouse_operator.desired.aggregator import shard_ingest
from blockhouse_operator.reconcile.children import Applied, Children
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.shard import parse_status

log = structlog.get_logger(__name__)


async def restore_shards(services: Services, pipeline: BlockAggregator, shards: Children, applied: Applied) -> None:
    """Replace the spec of each shard that differs although the apply found nothing to write."""
    touched = {*applied.written, *applied.ending}
    for number in range(pipeline.spec.shards):
        await asyncio.sleep(0)  # the lease has to be renewed meanwhile
        name = names.shard_ingest(pipeline.name, number)
        live = shards.get((SHARD_INGEST.name, name))
        if live is None or f"{SHARD_INGEST.name} {name}" in touched:
            continue
        changed = _changed(pipeline, number, live)
        if not changed:
            continue
        shown = ", ".join(changed[:5])
        spec = shard_ingest(pipeline, number)["spec"]
        await services.kubernetes.replace_spec(live, spec, why=f"changed by another manager: {shown}")
        applied.written.append(f"{SHARD_INGEST.name} {name}")
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


def states_of(pipeline: BlockAggregator, shards: Children, applied: Applied) -> list[ShardState]:
    """Every shard of the spec. The status of one that was written in this reconcile is about its spec of before."""
    found = []
    written = set(applied.written)
    for number in range(pipeline.spec.shards):
        name = names.shard_ingest(pipeline.name, number)
        live = shards.get((SHARD_INGEST.name, name))
        if live is None:
            found.append(ShardState(number, parse_status({}), current=False))
            continue
        status = parse_status(live)
        fresh = f"{SHARD_INGEST.name} {name}" not in written
        current = fresh and status.observed_generation == live["metadata"].get("generation")
        holds = not current and status_holds(resolve(pipeline, number), status)
        found.append(ShardState(number, status, current=current, holds=holds))
    return found
