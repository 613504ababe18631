"""Shards that are not in a pipeline's spec any more: removed one at a time, once every message of them is stored."""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse_operator.adapters.kinds import SHARD_INGEST, VOLUME_CLAIM, Object
from blockhouse_operator.adapters.packed import PackedObjects
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import BlockAggregator, InvalidSpec, parse_shard_ingest
from blockhouse_operator.decide.references import Reference
from blockhouse_operator.decide.shard import drained
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.reconcile.children import Applied, list_children
from blockhouse_operator.reconcile.observe import observe_shard
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.snapshot import KINDS, list_pods, snapshot_of


@dataclass(frozen=True)
class Removal:
    """Surplus shards that are there still, and what the one of the highest number waits for."""

    left: tuple[int, ...] = ()
    draining: str = ""


def surplus_shards(services: Services, pipeline: BlockAggregator, shards: PackedObjects) -> dict[int, str]:
    """Names of shards that exist and are not in the spec, by number. Their reconciles know it from now on."""
    found = {int(shards.labels(place).get(labels.SHARD, "-1")): place[1] for place in shards}
    surplus = {number: name for number, name in found.items() if number >= pipeline.spec.shards}
    services.leaving[f"{pipeline.namespace}/{pipeline.name}"] = frozenset(surplus.values())
    return surplus


async def remove_surplus(
    services: Services, fresh: Services, pipeline: BlockAggregator, shards: PackedObjects
) -> Removal:
    """Remove the surplus shard of the highest number, if the spec allows it and every message of it is stored: by what
    `fresh` reads, for nothing else states whether all is."""
    surplus = surplus_shards(services, pipeline, shards)
    left = tuple(sorted(surplus))
    if pipeline.spec.shard_removal_policy == "Drain":
        await _delete_volumes(services, pipeline, shards)
    if not left or pipeline.spec.shard_removal_policy != "Drain":
        return Removal(left, "spec.shardRemovalPolicy forbids it" if left else "")
    last = shards[SHARD_INGEST.name, surplus[max(left)]]
    if last["metadata"].get("deletionTimestamp"):
        return Removal(left, "it is ending")
    waits = await _waits_for(fresh, last)
    if waits:
        return Removal(left, waits)
    await services.kubernetes.delete(last, why="not in the spec any more, and every message is stored")
    return Removal(left, "it is ending")


async def _delete_volumes(services: Services, pipeline: BlockAggregator, shards: PackedObjects) -> None:
    """Volumes of shards that were removed: they belong to the pipeline, which has the policy to delete them."""
    managed = pipeline.spec.clickhouse.managed
    if managed is None or managed.storage.deletion_policy != "Delete":
        return
    there = {shards.labels(place).get(labels.SHARD) for place in shards}
    own = labels.of_pipeline(pipeline.name)
    for claim in await services.kubernetes.list(VOLUME_CLAIM, pipeline.namespace, own):
        meta = claim["metadata"]
        shard = meta["labels"].get(labels.SHARD, "")
        mine = any(owner["uid"] == pipeline.uid for owner in meta.get("ownerReferences", ()))
        gone = shard.isdigit() and int(shard) >= pipeline.spec.shards and shard not in there
        if mine and gone and not meta.get("deletionTimestamp"):
            await services.kubernetes.delete(claim, why=f"shard {shard} was removed")


async def _waits_for(services: Services, live: Object) -> str:
    """What a shard still has to store before it may be removed, as of now; empty when there is nothing."""
    try:
        shard = parse_shard_ingest(live)
    except InvalidSpec as error:
        return f"its resource is invalid, so it is unknown whether it is drained: {error}"
    contents = Contents(services.kubernetes, shard.namespace, services.folder)
    await contents.read([Reference("Secret", names.internal_secret(shard.spec.pipeline), "token")])
    of_shard = labels.of_shard(shard.spec.pipeline, shard.spec.shard)
    found = await list_children(services.kubernetes, KINDS, shard.namespace, of_shard)
    snapshot = snapshot_of(services, shard, live, found, await list_pods(services, shard), Applied())
    if drained(expected_streams(shard.spec), await observe_shard(services, shard, snapshot, contents, (), {})):
        return ""
    return "messages of its topics are not stored yet; stop producing to it"
