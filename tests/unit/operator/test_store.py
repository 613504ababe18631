"""What the watches reported is kept, never older than what this process was answered, and given only while true."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse_operator.adapters.kinds import CONFIG_MAP, POD
from blockhouse_operator.adapters.store import TRUSTED_SECONDS, Store, Stores
from blockhouse_operator.api.labels import CHILD, of_shard

LABELS = of_shard("p", 1)
PLACE = ("ns", "a")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pod(version: int, name: str = "a", labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    meta = {"namespace": "ns", "name": name, "resourceVersion": str(version), "labels": labels or LABELS}
    return {"metadata": meta, **more}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    """One that has listed version 100, in which `a` was of version 90."""
    made = Store(POD, None, CHILD, clock)
    made.reported(pod(90))
    made.listed({PLACE}, "100")
    return made


def version_of(store: Store) -> str | None:
    found = store.get(PLACE)
    return None if found is None else found["metadata"]["resourceVersion"]


def names(store: Store, labels: dict[str, str] = LABELS, namespace: str | None = "ns") -> list[str] | None:
    found = store.list(namespace, labels)
    return None if found is None else sorted(item.name for item in found)


def test_it_gives_objects_as_a_request_would(store: Store) -> None:
    store.reported(pod(101, "b", of_shard("p", 2), spec={"deep": [1, {"x": None}]}))

    assert store.get(("ns", "b")) == {
        "apiVersion": "v1",
        "kind": "Pod",
        **pod(101, "b", of_shard("p", 2), spec={"deep": [1, {"x": None}]}),
    }
    assert names(store) == ["a"]
    assert names(store, of_shard("p", 2)) == ["b"]
    assert names(store, dict(CHILD)) == names(store, dict(CHILD), None) == ["a", "b"]
    assert names(store, LABELS, "other") == []


def test_objects_that_are_much_alike_take_little_room(store: Store) -> None:
    text = "".join(f"setting_{number}={number * number}\n" for number in range(500))
    before = store.size
    made = [pod(101 + number, f"b-{number}", spec={"text": text, "number": number}) for number in range(20)]
    for one in made:
        store.reported(one)

    assert [store.get(("ns", one["metadata"]["name"])) for one in made] == [
        {"apiVersion": "v1", "kind": "Pod", **one} for one in made
    ]
    assert (store.size - before) / len(made) < len(text) / 10


def test_it_does_not_answer_for_what_its_watch_does_not_cover(store: Store, clock: Clock) -> None:
    assert store.list("ns", {}) is None
    assert store.get(("ns", "unknown")) is None
    assert Store(POD, "ns", CHILD, clock).list("ns", LABELS) is None, "nothing was listed yet"


def test_an_older_report_takes_nothing_back(store: Store) -> None:
    store.answered(pod(105), store.asked())
    store.reported(pod(103))

    assert version_of(store) == "105"


def read(store: Store, found: list[Any], asked: int) -> None:
    """A request of that moment for all objects with LABELS, answered with those."""
    store.read("ns", LABELS, {store.answered(each, asked) for each in found})


def test_what_was_reported_gone_does_not_come_back_by_an_answer_that_was_on_its_way(store: Store) -> None:
    asked = store.asked()
    store.reported(pod(110), gone=True)
    read(store, [pod(90)], asked)

    assert names(store) == []


def test_an_object_that_was_just_created_is_there_before_its_watch_reports_it(store: Store) -> None:
    store.answered(pod(120, "b"), store.asked())

    assert names(store) == ["a", "b"]
    store.listed({PLACE}, "119")
    assert names(store) == ["a", "b"], "a list from before does not have it yet"
    store.listed({PLACE}, "121")
    assert names(store) == ["a"]


def test_objects_of_others_are_not_taken_in(store: Store) -> None:
    store.answered(pod(120, "foreign", {"app": "other"}), store.asked())

    assert store.get(("ns", "foreign")) is None


def test_after_a_write_that_shows_no_object_the_api_server_is_asked(store: Store) -> None:
    store.doubt(PLACE)

    assert store.get(PLACE) is None
    assert names(store) is None
    assert names(store, of_shard("p", 2)) == [], "of other shards all is known"


def test_only_an_answer_to_a_later_request_settles_a_doubt(store: Store) -> None:
    before = store.asked()
    store.doubt(PLACE)
    read(store, [pod(90)], before)
    assert names(store) is None

    store.reported(pod(101))
    assert names(store) is None, "an event that was on its way before the write"

    read(store, [pod(101)], store.asked())
    assert names(store) == ["a"]


def test_what_a_request_did_not_find_is_not_given_any_more(store: Store) -> None:
    read(store, [], store.asked())

    assert names(store) is None
    store.reported(pod(101), gone=True)
    assert names(store) == []


def test_a_watch_that_is_not_heard_is_not_believed(store: Store, clock: Clock) -> None:
    clock.now += TRUSTED_SECONDS
    assert names(store) is None
    assert store.version(PLACE) is None

    store.heard()
    assert names(store) == ["a"]


def test_an_api_server_that_was_restored_from_a_backup_is_believed(store: Store) -> None:
    store.reported(pod(150))
    store.reported(pod(151, "made-since"))
    store.lists("120")
    store.reported(pod(80))
    store.listed({PLACE}, "120")

    assert version_of(store) == "80"
    assert names(store) == ["a"]
    store.reported(pod(121))
    assert version_of(store) == "121"


def test_a_group_has_a_state_that_changes_with_each_of_its_objects(clock: Clock) -> None:
    stores, group = Stores(), ("ns", "p", "1")
    pods, maps = (stores.add(kind, None, CHILD, clock) for kind in (POD, CONFIG_MAP))
    assert stores.state_of(group) is None, "not everything was listed yet"
    pods.listed(set(), "100")
    maps.listed(set(), "100")

    states = [stores.state_of(group)]
    for change in (
        lambda: pods.reported(pod(101)),
        lambda: maps.reported(pod(102)),
        lambda: pods.reported(pod(103)),
        lambda: pods.reported(pod(104), gone=True),
        lambda: maps.listed(set(), "105"),
    ):
        change()
        states.append(stores.state_of(group))

    assert len(set(states)) == len(states)
    assert None not in states
    pods.reported(pod(106, labels=of_shard("p", 2)))
    assert stores.state_of(group) == states[-1]
