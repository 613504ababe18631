"""What becomes of children that no manifest describes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from blockhouse.errors import Retryable
from blockhouse_operator.reconcile.children import Applied, apply_children, prune_children, raise_refused

OWNER = {"uid": "mine", "controller": True}


def child(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "ownerReferences": [OWNER], **metadata}}


class Deletions:
    def __init__(self) -> None:
        self.names: list[str] = []

    async def delete(self, live: Any, *, why: str) -> None:
        self.names.append(live["metadata"]["name"])


async def test_what_is_not_described_is_deleted_but_never_a_volume_claim() -> None:
    """Whether a volume may go is for the plan that knows where its data is."""
    kubernetes = Deletions()
    objects = [
        child("Service", "left-over"),
        child("PersistentVolumeClaim", "data-left-over"),
        child("Service", "kept"),
        child("Service", "ending", deletionTimestamp="now"),
        child("Service", "described"),
        {"kind": "Service", "metadata": {"name": "of-another", "ownerReferences": [{**OWNER, "uid": "other"}]}},
    ]
    live = {(one["kind"], one["metadata"]["name"]): one for one in objects}

    await prune_children(cast(Any, kubernetes), [child("Service", "described")], live, "mine", keep=["kept"])

    assert kubernetes.names == ["left-over"]


class Unchanged:
    """An API server that has everything already."""

    async def apply(self, manifest: Any, live: Any, **_: bool) -> str:
        return "unchanged"


async def test_thousands_of_shards_that_are_as_desired_do_not_keep_the_lease_from_being_renewed() -> None:
    renewals = 0

    async def renew() -> None:
        nonlocal renewals
        while True:
            renewals += 1
            await asyncio.sleep(0)

    manifests = [{"kind": "ClickHouseShardIngest", "metadata": {"name": str(number)}} for number in range(2050)]
    live = {(one["kind"], one["metadata"]["name"]): child(one["kind"], one["metadata"]["name"]) for one in manifests}
    renewing = asyncio.create_task(renew())
    await apply_children(cast(Any, Unchanged()), manifests, live, {"mine"})
    renewing.cancel()

    assert renewals >= len(manifests)


def test_a_refused_write_is_tried_again_by_the_queue_and_its_back_off() -> None:
    raise_refused("events", Applied())
    with pytest.raises(Retryable, match="data-r cannot be written"):
        raise_refused("events", Applied(refused=["PersistentVolumeClaim data-r cannot be written: no"]))
