"""The password with which replicas fetch parts: accepted everywhere before it is used, and used before the former one
ends."""

from __future__ import annotations

import base64
import copy
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR
from blockhouse_operator.api import names
from blockhouse_operator.decide.credentials import OVERLAP_SECONDS
from blockhouse_operator.decide.parts_login import replaced, rests
from blockhouse_operator.desired.parts_login import FILE, PartsLogin, parsed, written
from e2e.memory.fleet import NAME, NAMESPACE, Fleet

LATER = OVERLAP_SECONDS + 1


# --- the steps ----------------------------------------------------------------------------------------------------


def steps(published: PartsLogin, given: str) -> list[PartsLogin]:
    """What servers have one after the other, each for long enough."""
    found = [published]
    while not rests(found[-1], given):
        found.append(replaced(found[-1], given, waited=LATER, everywhere=True))
        assert len(found) < 10, found
    return found


def test_a_password_is_accepted_then_used_then_alone() -> None:
    assert steps(PartsLogin("a"), "b") == [
        PartsLogin("a"),
        PartsLogin("a", ("b",)),
        PartsLogin("b", ("a",)),
        PartsLogin("b"),
    ]


@pytest.mark.parametrize("changes", ["b", "bc", "ba", "bab", "bcd", "bacb"])
@pytest.mark.parametrize("patience", range(4))
def test_no_two_servers_that_have_read_neighbouring_steps_refuse_each_other(changes: str, patience: int) -> None:
    """However soon the Secret changes again: each change comes after `patience` steps of the one before."""
    history, given = [PartsLogin("a")], "a"
    for given in changes:
        for _ in range(patience):
            history.append(replaced(history[-1], given, waited=LATER, everywhere=True))
    history += steps(history[-1], given)
    assert history[-1] == PartsLogin(given)
    for before, after in itertools.pairwise(history):
        for one, other in ((before, after), (after, before)):
            assert one.used in (other.used, *other.accepted), (before, after)


def test_a_step_waits_for_its_time_and_for_every_server_to_read_the_file() -> None:
    accepted = PartsLogin("a", ("b",))
    assert replaced(accepted, "b", waited=OVERLAP_SECONDS - 1, everywhere=True) == accepted
    assert replaced(accepted, "b", waited=LATER, everywhere=False) == accepted
    assert replaced(PartsLogin("a"), "b", waited=0, everywhere=False) == accepted
    assert replaced(None, "b", waited=0, everywhere=False) == PartsLogin("b")


@pytest.mark.parametrize("login", [PartsLogin("a & <b>"), PartsLogin("a", ("b", "c"))])
def test_how_far_it_is_can_be_read_from_the_file(login: PartsLogin) -> None:
    assert parsed(written(login)) == login


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(PartsLogin("secret-1", ("secret-2",)))


@pytest.mark.parametrize("text", ["", "<yandex>", "<yandex/>"])
def test_a_file_that_is_not_there_or_was_changed_by_hand_is_none(text: str) -> None:
    assert parsed(text) is None


# --- the operator -------------------------------------------------------------------------------------------------


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Settled, with a password between replicas."""
    made = Fleet(1, tmp_path)
    give(made, "one")
    with made.kafka.here():
        async with made.watched():
            declare(made)
            await made.settle()
            await made.caught_up()
            yield made


def give(fleet: Fleet, word: str) -> None:
    data = {"word": base64.b64encode(word.encode()).decode()}
    metadata = {"name": "parts", "namespace": NAMESPACE}
    fleet.api.put("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


def declare(fleet: Fleet, **rollout: Any) -> None:
    change(fleet, lambda spec: spec["clickhouse"]["managed"].update(interserverSecretRef=REFERENCE))
    change(fleet, lambda spec: spec.update(rollout=rollout))


REFERENCE = {"name": "parts", "key": "word"}


def change(fleet: Fleet, how: Callable[[dict[str, Any]], None]) -> None:
    found = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    how(found["spec"])
    found["metadata"]["generation"] = found["metadata"].get("generation", 1) + 1
    fleet.api.put(BLOCK_AGGREGATOR.plural, found)


def published(fleet: Fleet) -> PartsLogin | None:
    data = fleet.api.of("secrets")[NAMESPACE, names.clickhouse_secret(NAME)]["data"]
    return parsed(base64.b64decode(data.get(FILE, "")).decode())


def reports(fleet: Fleet, reason: str) -> list[str]:
    events = [event for event in fleet.api.of("events").values() if event["reason"] == reason]
    return [event.get("note") or event.get("message", "") for event in events]


def pods(fleet: Fleet) -> set[str]:
    return {pod["metadata"]["uid"] for pod in fleet.api.of("pods").values()}


async def after(fleet: Fleet, seconds: float) -> PartsLogin | None:
    fleet.now += seconds
    await fleet.pipeline()
    await fleet.settle()
    await fleet.caught_up()
    return published(fleet)


async def test_a_changed_secret_reaches_servers_step_by_step(fleet: Fleet) -> None:
    assert published(fleet) == PartsLogin("one")
    give(fleet, "two")
    assert await after(fleet, 61) == PartsLogin("one", ("two",)), "the operator reads Secrets once a minute"
    assert await after(fleet, OVERLAP_SECONDS - 10) == PartsLogin("one", ("two",))
    assert await after(fleet, 11) == PartsLogin("two", ("one",))
    fleet.restart()
    async with fleet.watched():
        assert await after(fleet, 0) == PartsLogin("two", ("one",))
        assert await after(fleet, OVERLAP_SECONDS - 10) == PartsLogin("two", ("one",)), (
            "another leader counts from then on"
        )
        assert await after(fleet, 11) == PartsLogin("two")


async def test_a_missing_secret_changes_nothing(fleet: Fleet) -> None:
    fleet.api.remove("secrets", (NAMESPACE, "parts"))
    assert await after(fleet, 61) == PartsLogin("one")


async def test_pods_that_do_not_mount_the_file_are_waited_for(fleet: Fleet) -> None:
    place, pod = next(iter(fleet.api.of("pods").items()))
    former = copy.deepcopy(pod)
    for volume in former["spec"]["volumes"]:
        if sources := volume.get("projected", {}).get("sources"):
            sources[:] = [each for each in sources if FILE not in str(each)]
    fleet.api.put("pods", former)
    give(fleet, "two")
    await after(fleet, 61)
    assert await after(fleet, LATER) == PartsLogin("one", ("two",))
    assert place[1] in reports(fleet, "PartsPasswordWaits")[0]
    fleet.api.put("pods", pod)
    assert await after(fleet, 1) == PartsLogin("two", ("one",))


async def test_pods_restart_for_it_where_that_is_asked_for_once_it_is_used(fleet: Fleet) -> None:
    declare(fleet, onSecretChange="Restart")
    await after(fleet, 61)
    before = pods(fleet)
    give(fleet, "two")
    assert await after(fleet, 61) == PartsLogin("one", ("two",))
    assert pods(fleet) == before, "18.16 would read the former one"
    assert await after(fleet, LATER) == PartsLogin("two", ("one",))
    await after(fleet, 61)
    restarted = pods(fleet)
    assert before.isdisjoint(restarted)
    assert await after(fleet, LATER) == PartsLogin("two")
    await after(fleet, 61)
    assert pods(fleet) == restarted
