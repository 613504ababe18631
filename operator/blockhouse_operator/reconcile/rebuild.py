"""Observe which replicas of a shard need a rebuild, and keep the pod of one away while its volume is replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from blockhouse_operator.adapters.kinds import VOLUME_CLAIM, Object
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.decide.replication import ReplicationSeen
from blockhouse_operator.decide.seen import Rebuild, RebuildSeen, TableAt
from blockhouse_operator.desired.shard import without_pods
from blockhouse_operator.reconcile.children import Children

COPIED, NOT_COPIED = "copied", "not-copied"
"""Values of the annotation of a retained claim: whether others had its data when its replica was removed."""

Tables = Mapping[str, tuple[TableAt, ...]]


def rebuild_seen(shard: ClickHouseShardIngest, live: Children) -> RebuildSeen:
    """What may need a rebuild, by Kubernetes alone."""
    claims = {
        replica.name: found
        for replica in shard.spec.replicas
        if (found := live.get((VOLUME_CLAIM.name, names.claim(replica.name)))) is not None
    }
    notes = {name: (claim["metadata"].get("annotations") or {}) for name, claim in claims.items()}
    begun = shard.status.rebuild
    return RebuildSeen(
        claims={name: claim["metadata"]["uid"] for name, claim in claims.items()},
        lost=frozenset(name for name, c in claims.items() if (c.get("status") or {}).get("phase") == "Lost"),
        returned=frozenset(name for name in claims if labels.UNREGISTERED in notes[name]),
        unproven=frozenset(name for name in claims if notes[name].get(labels.UNREGISTERED, COPIED) != COPIED),
        asked=shard.annotations.get(labels.REBUILD_REPLICA, ""),
        begun=Rebuild(begun.replica, begun.claim) if begun is not None else None,
    )


def concerns(found: RebuildSeen, tables: Tables) -> bool:
    """Whether anything may need a rebuild, so that replication has to be observed."""
    return bool(found.lost or found.returned or found.asked or found.begun or any(_missing(tables)))


def about_replica(found: RebuildSeen) -> str:
    """The replica whose data is to be on others; empty when that is not known yet."""
    if found.begun is not None:
        return found.begun.replica
    return min([*found.lost, *found.returned], default=found.asked)


def with_replication(found: RebuildSeen, tables: Tables, replication: ReplicationSeen) -> RebuildSeen:
    """The same, with the tables that a server does not have although its replica is registered for them, and is not
    active there; and without returned volumes whose replica is registered again."""
    empty: dict[str, tuple[str, ...]] = {}
    paths = {name: path for path, name in replication.names.items()}
    for replica, table in _missing(tables):
        path = paths.get(table, "")
        mine = replication.tables.get(path, {}).get(replica)
        if mine is not None and not mine.active:
            empty[replica] = (*empty.get(replica, ()), path)
    returned = frozenset(name for name in found.returned if not replication.registered(name))
    return replace(found, empty=empty, returned=returned)


def _missing(tables: Tables) -> list[tuple[str, str]]:
    """Replica and table where a server does not have a declared table."""
    return [
        (at.replica, table)
        for table, ats in tables.items()
        for at in ats
        if at.served and at.gap is not None and not at.gap.exists
    ]


def without_pod_of_rebuilt(shard: ClickHouseShardIngest, manifests: Sequence[Object], live: Children) -> list[Object]:
    """The manifests, in which the replica whose volume is to be replaced has no pod until its claim is another one."""
    begun = shard.status.rebuild
    claim = live.get((VOLUME_CLAIM.name, names.claim(begun.replica))) if begun is not None else None
    if begun is None or claim is None or claim["metadata"]["uid"] != begun.claim:
        return list(manifests)
    return without_pods(manifests, {begun.replica})
