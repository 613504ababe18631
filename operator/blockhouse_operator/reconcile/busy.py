"""How many shards of a pipeline are being changed, by what their statuses say: so another leader counts the same."""

from __future__ import annotations

from blockhouse_operator.adapters.kinds import SHARD_INGEST, Object
from blockhouse_operator.api import labels
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.reconcile.services import Services


async def busy_shards(services: Services, shard: ClickHouseShardIngest) -> int:
    """Other shards with a replica that restarts or a table that is held.

    To be asked under the pipeline's `rollout_lock`, and what is begun then to be noted in the status under it too.
    """
    shards = await services.kubernetes.list(SHARD_INGEST, shard.namespace, labels.of_pipeline(shard.spec.pipeline))
    return sum(_busy(other) for other in shards if other["metadata"]["name"] != shard.name)


def _busy(shard: Object) -> bool:
    status = shard.get("status") or {}
    restarting = (status.get("rollout") or {}).get("replica")
    return bool(restarting) or any(table.get("heldSince") for table in status.get("tables") or ())
