"""Steps after which data of a replica or a shard is gone: in which order, and what they make sure of before."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse_operator.adapters.kinds import SHARD_INGEST, VOLUME_CLAIM, Kind
from blockhouse_operator.adapters.packed import PackedObjects, Packer
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import parse_shard_ingest
from blockhouse_operator.decide.rebuild import EndRebuild
from blockhouse_operator.decide.removal import DeleteReplica, Unregister
from blockhouse_operator.decide.seen import Gap, ShardSeen
from blockhouse_operator.decide.shard import ShardPlan
from blockhouse_operator.desired import aggregator, shard
from blockhouse_operator.reconcile.observe import ShardLook
from blockhouse_operator.reconcile.rebuild import COPIED, NOT_COPIED, rebuild_seen
from blockhouse_operator.reconcile.rebuild_steps import RebuildSteps
from blockhouse_operator.reconcile.steps import ShardSteps
from blockhouse_operator.reconcile.surplus import remove_surplus
from tests.unit.operator.resources import pipeline

PIPELINE = pipeline(("spec.shards", 1), ("spec.clickhouse.managed.storage.deletionPolicy", "Delete"))
SHARD = parse_shard_ingest(
    next(each for each in aggregator.children(PIPELINE) if each["kind"] == "ClickHouseShardIngest")
    | {"metadata": {"name": "events-0", "namespace": "data", "uid": "shard-uid", "generation": 1}}
)
REPLICA = SHARD.spec.replicas[0].name


class Recording:
    """An API server that takes everything, and records deletions and Events."""

    def __init__(self, *claims: Any) -> None:
        self.deleted: list[tuple[str, str]] = []
        self.annotated: list[tuple[str, dict[str, str | None]]] = []
        self.claims = claims

    async def delete(self, live: Any, *, why: str) -> None:
        self.deleted.append((live["kind"], live["metadata"]["name"]))

    async def list(self, kind: Kind, *_: object) -> list[Any]:
        assert kind is VOLUME_CLAIM
        return list(self.claims)

    async def annotate(self, live: Any, annotations: dict[str, str | None], **_: object) -> None:
        self.annotated.append((live["metadata"]["name"], annotations))

    async def emit(self, *_: object, **__: object) -> None:
        return


def steps(kubernetes: Recording, children: dict[tuple[str, str], Any], **annotations: str) -> ShardSteps:
    services: Any = SimpleNamespace(kubernetes=kubernetes, now=lambda: "now", must_be_fresh=lambda: None)
    unused: Any = None
    known = replace(SHARD, annotations={getattr(labels, name): value for name, value in annotations.items()})
    live = {"metadata": {"name": SHARD.name}}
    return ShardSteps(services, known, live, children, ShardLook(ShardSeen(())), unused)


async def test_of_a_replica_that_leaves_the_volume_goes_last() -> None:
    """While it exists the data exists, and what is not deleted yet can be found by it."""
    children = {}
    for each in reversed(shard.children(SHARD)):  # the volume claim is not the last one by itself
        if each["metadata"]["labels"].get(labels.REPLICA) == REPLICA:
            owned = {"ownerReferences": [{"uid": SHARD.uid}]}
            children[each["kind"], each["metadata"]["name"]] = {**each, "metadata": {**each["metadata"], **owned}}
    kubernetes = Recording()

    await steps(kubernetes, children).take(ShardPlan((DeleteReplica(REPLICA, "it has ended"),), ()))

    assert len(kubernetes.deleted) == len(children) > 2
    assert [kind for kind, _ in kubernetes.deleted[-2:]] == ["StatefulSet", "PersistentVolumeClaim"]


async def test_a_volume_that_is_retained_is_not_deleted_with_its_replica() -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "labels": {labels.REPLICA: REPLICA}}}
    kubernetes = Recording()

    await steps(kubernetes, {(VOLUME_CLAIM.name, "data"): claim}).take(
        ShardPlan((DeleteReplica(REPLICA, "it has ended"),), ())
    )

    assert kubernetes.deleted == []


@pytest.mark.parametrize("step", [DeleteReplica(REPLICA, "it has ended"), EndRebuild(REPLICA, "it has caught up")])
@pytest.mark.parametrize(("accepted", "forgotten"), [(REPLICA, True), ("another", False)])
async def test_the_acceptance_of_a_loss_is_for_one_loss(
    step: DeleteReplica | EndRebuild, accepted: str, forgotten: bool
) -> None:
    """The volume may return, with rows that no one has accepted to lose."""
    kubernetes = Recording()

    await steps(kubernetes, {}, ACCEPT_DATA_LOSS=accepted).take(ShardPlan((step,), ()))

    expected = [(SHARD.name, {labels.ACCEPT_DATA_LOSS: None})]
    assert kubernetes.annotated == (expected if forgotten else [])


@pytest.mark.parametrize(
    ("before", "copied", "after"),
    [(None, True, COPIED), (None, False, NOT_COPIED), (COPIED, False, NOT_COPIED), (NOT_COPIED, True, None)],
)
async def test_what_was_not_copied_when_a_replica_was_removed_stays_so(
    before: str | None, copied: bool, after: str | None
) -> None:
    """A removal that is cut short is repeated without the acceptance, which is taken away in the middle of it."""
    notes = {labels.UNREGISTERED: before} if before else {}
    claim = {"metadata": {"name": names.claim(REPLICA), "annotations": notes}}
    kubernetes, unused = Recording(), None
    services: Any = SimpleNamespace(kubernetes=kubernetes)
    children = {(VOLUME_CLAIM.name, names.claim(REPLICA)): claim}
    rebuilds = RebuildSteps(services, SHARD, {}, children, ShardSeen(()), unused)  # type: ignore[arg-type]

    await rebuilds.mark_retained(REPLICA, copied=copied)

    assert kubernetes.annotated == ([(names.claim(REPLICA), {labels.UNREGISTERED: after})] if after else [])


@pytest.mark.parametrize("exists", [True, False])
async def test_a_registration_is_dropped_only_if_the_server_still_lacks_the_table(exists: bool) -> None:
    """The table may have been created since it was observed: its registration is in use then."""
    asked: list[str] = []
    dropped: list[tuple[str, str]] = []

    class Http:
        async def gap(self, _base: str, _login: object, table: str, _ddl: str) -> Gap:
            asked.append(table)
            return Gap(exists)

    path = "/clickhouse/tables/0/db.clicks"
    ensemble = SimpleNamespace(unregister=lambda path, replica: dropped.append((path, replica)))
    services: Any = SimpleNamespace(
        http=Http(),
        endpoints=SimpleNamespace(aggregator=lambda *_, **__: "http://replica"),
        ensembles=SimpleNamespace(of=lambda _: ensemble),
        kubernetes=Recording(),
        must_be_fresh=lambda: None,
        now=lambda: "now",
        dry_run=False,
    )
    contents: Any = SimpleNamespace(
        admin_login=lambda *_: None, declaration=lambda table: table.ddl, zookeeper=lambda spec: spec
    )
    made = ShardSteps(services, SHARD, {}, {}, ShardLook(ShardSeen(())), contents)

    taken = await made.take(ShardPlan((Unregister(REPLICA, "its tables are cloned from others", (path,)),), ()))

    assert asked == ["db.clicks"]
    assert dropped == ([] if exists else [(path, REPLICA)])
    assert (taken.trouble is not None) is exists


@pytest.mark.parametrize(("note", "unproven"), [(COPIED, False), (NOT_COPIED, True), ("of-a-later-version", True)])
def test_a_volume_whose_replica_was_removed_with_loss_is_remembered_as_unproven(note: str, unproven: bool) -> None:
    metadata = {"name": names.claim(REPLICA), "uid": "1", "annotations": {labels.UNREGISTERED: note}}

    found = rebuild_seen(SHARD, {(VOLUME_CLAIM.name, names.claim(REPLICA)): {"metadata": metadata}})

    assert found.returned == {REPLICA}
    assert (REPLICA in found.unproven) is unproven


def claim_of(number: int, owner: str = PIPELINE.uid, **more: Any) -> dict[str, Any]:
    metadata = {"name": f"data-{number}", "labels": {labels.SHARD: str(number)}, "ownerReferences": [{"uid": owner}]}
    return {"kind": "PersistentVolumeClaim", "metadata": metadata | more}


async def volumes_deleted(*shards: int) -> list[str]:
    """Of the volumes of shards 0 to 2 and of one of another owner, while these shards exist; the spec has one."""
    kubernetes = Recording(claim_of(0), claim_of(1), claim_of(2), claim_of(3, owner="another"))
    ending = {"deletionTimestamp": "now", "resourceVersion": "7"}
    live = [
        {"metadata": {"name": f"events-{number}", "labels": {labels.SHARD: str(number)}, **ending}} for number in shards
    ]
    packed = PackedObjects(SHARD_INGEST, map(Packer(SHARD_INGEST).pack, live))
    draining = replace(PIPELINE, spec=PIPELINE.spec.model_copy(update={"shard_removal_policy": "Drain"}))
    services: Any = SimpleNamespace(kubernetes=kubernetes, leaving={})
    await remove_surplus(services, services, draining, packed)
    return [name for _, name in kubernetes.deleted]


async def test_volumes_of_a_shard_go_once_the_shard_is_gone_and_is_not_in_the_spec() -> None:
    """Before, its servers write into them."""
    assert await volumes_deleted(0, 1, 2) == []
    assert await volumes_deleted(0, 1) == ["data-2"]
    assert await volumes_deleted() == ["data-1", "data-2"], (
        "shard 0 is in the spec: it is created again, and finds its own"
    )
