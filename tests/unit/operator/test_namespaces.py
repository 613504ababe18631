"""Of several namespaces one that is refused is unknown: neither gone nor empty, and no obstacle for the others."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, POD, Kind
from blockhouse_operator.adapters.namespaces import LONGEST_REST, Namespaces
from blockhouse_operator.adapters.refusals import NotFound
from blockhouse_operator.adapters.store import Stores
from blockhouse_operator.api.conditions import ConditionType as Type
from blockhouse_operator.api.conditions import Reason, condition
from blockhouse_operator.decide.claims import claims_of, undecided
from blockhouse_operator.decide.pipeline import PipelineSeen, describe_pipeline
from blockhouse_operator.decide.reassignment_queue import Candidate, Queue, goes_first
from blockhouse_operator.handlers.freshness import Freshness
from blockhouse_operator.handlers.inventory import Inventory
from blockhouse_operator.handlers.listing import Listing
from blockhouse_operator.reconcile.undisputed import Undisputed, accepted_before
from tests.unit.operator.resources import pipeline

FORBIDDEN = Permanent("GET: forbidden (403 Forbidden)", reason="Forbidden", code=403)
MINE, UNREAD = frozenset({("topic k:9092", "events")}), ("billing",)


class Api:
    """One pipeline in each namespace; `errors` by namespace."""

    def __init__(self) -> None:
        self.errors: dict[str | None, Exception] = {}
        self.asked: list[str | None] = []

    async def list(self, kind: Kind, namespace: str | None, labels: object = None, **_: object) -> list[dict[str, Any]]:
        self.asked.append(namespace)
        if namespace in self.errors:
            raise self.errors[namespace]
        meta = {"namespace": namespace, "name": "p", "uid": f"uid-{namespace}", "generation": 1}
        return (
            [{"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}] if kind is BLOCK_AGGREGATOR else []
        )


class World:
    """A listing of two namespaces, whose time the test gives."""

    def __init__(self, *names: str) -> None:
        self.api, self.now, self.added = Api(), 0.0, []
        self.namespaces, self.freshness, self.inventory = Namespaces(names), Freshness(), Inventory()
        services: Any = SimpleNamespace(
            kubernetes=self.api, namespaces=self.namespaces, clock=lambda: self.now, resync=10.0
        )
        self.listing = Listing(services, self.freshness, self.inventory, self.added.append)


async def test_a_refused_namespace_is_named_and_the_others_are_listed() -> None:
    world = World("orders", "billing")
    world.api.errors["billing"] = FORBIDDEN
    kubernetes: Any = world.api

    found, unread = await world.namespaces.list(kubernetes, BLOCK_AGGREGATOR)

    assert [each["metadata"]["namespace"] for each in found] == ["orders"]
    assert unread == ("billing",)


@pytest.mark.parametrize("error", [Retryable("no answer"), NotFound("no such kind", reason="NotFound")])
async def test_what_is_no_refusal_is_an_error_as_before(error: Exception) -> None:
    world = World("orders", "billing")
    world.api.errors["billing"] = error
    kubernetes: Any = world.api

    with pytest.raises(type(error)):
        await world.namespaces.list(kubernetes, BLOCK_AGGREGATOR)


async def test_a_refusal_of_the_whole_cluster_is_an_error_as_before() -> None:
    world = World()
    world.api.errors[None] = FORBIDDEN
    kubernetes: Any = world.api

    with pytest.raises(Permanent):
        await world.namespaces.list(kubernetes, BLOCK_AGGREGATOR)


async def test_resources_of_a_refused_namespace_are_not_taken_for_gone() -> None:
    world = World("orders", "billing")
    world.freshness.reported("uid-billing", 1)
    await world.listing.once()
    world.api.errors["billing"] = FORBIDDEN

    await world.listing.once()

    assert world.namespaces.unread == {"billing"}
    assert {resource.namespace for resource in world.inventory.ready} == {"orders", "billing"}
    assert not world.freshness.found("uid-billing", 1, at=0.0), "it is still known as reported"


async def test_it_is_tried_again_ever_less_often() -> None:
    world = World("orders", "billing")
    world.api.errors["billing"] = FORBIDDEN
    tries = []
    for second in range(600):
        world.now, world.api.asked = float(second), []
        await world.listing.once()
        tries += [second] if "billing" in world.api.asked else []
        assert "orders" in world.api.asked

    assert tries[:5] == [0, 10, 30, 70, 150]
    assert {after - before for before, after in itertools.pairwise(tries[4:])} == {LONGEST_REST}

    del world.api.errors["billing"]
    world.now += LONGEST_REST
    await world.listing.once()
    assert world.namespaces.unread == frozenset()
    assert not await world.namespaces.readable("billing"), "its watches need not wait any more"


def test_claims_are_not_decided_while_a_namespace_is_unread() -> None:
    assert "billing" in undecided(MINE, (), UNREAD)
    assert not undecided(MINE, (), ())
    assert not undecided(MINE, MINE, UNREAD), "what was undisputed before continues"
    assert undecided({*MINE, ("group k:9092", "new")}, MINE, UNREAD), "a new claim was never compared"


def test_what_was_undisputed_stays_so_until_another_has_it() -> None:
    known = Undisputed()
    assert known.judge("uid", MINE, "", UNREAD, accepted=False)
    assert not known.judge("uid", MINE, "", (), accepted=False)
    assert not known.judge("uid", MINE, "", UNREAD, accepted=False)

    known.judge("uid", MINE, "belongs to the older one", (), accepted=False)
    assert known.judge("uid", MINE, "", UNREAD, accepted=False)


def test_a_new_process_goes_by_what_the_former_one_reported() -> None:
    well = [condition(Type.READY, True, Reason.ALL_CONSUMING, "")]
    assert accepted_before(well, 3, 3)
    assert not accepted_before(well, 2, 3), "the spec is another one"
    assert not accepted_before([], 3, 3)
    for reason in (Reason.CLAIMS_UNKNOWN, Reason.CLAIM_CONFLICT, Reason.INVALID_SPEC):
        assert not accepted_before([condition(Type.READY, False, reason, "")], 3, 3)
    assert not Undisputed().judge("uid", MINE, "", UNREAD, accepted=True)


def test_the_conditions_of_a_pipeline_that_is_not_decided_on() -> None:
    made = pipeline()
    assert claims_of(made)

    _, conditions = describe_pipeline(made.spec, PipelineSeen(shards=(), undecided="namespace billing cannot be read"))

    found = {each.type: (each.status, each.reason) for each in conditions}
    assert found["Ready"] == ("False", "ClaimsUnknown")
    assert found["Stalled"] == ("True", "ClaimsUnknown")


def test_no_reassignment_begins_beside_one_that_is_not_seen_and_one_that_executes_continues() -> None:
    mine = Candidate("orders/r", "k", "2026", executing=False, approved=True)
    assert "billing" in goes_first(Queue((mine,), unread=UNREAD), "orders/r", "k")
    assert goes_first(Queue((mine,)), "orders/r", "k") == ""
    executing = Candidate("orders/r", "k", "2026", executing=True, approved=True)
    assert goes_first(Queue((executing,), unread=UNREAD), "orders/r", "k") == ""


def test_each_namespace_has_a_store_of_its_own() -> None:
    stores = Stores()
    orders, billing = (stores.add(POD, name, {}, lambda: 0.0) for name in ("orders", "billing"))

    assert stores.of(POD, "orders") is orders
    assert stores.of(POD, "billing") is billing
    assert stores.of(POD, "other") is None
    assert stores.state_of(("other", None, None)) is None, "nothing is known of it"
