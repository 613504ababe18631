"""The judge of a rolling restart refuses what must not happen in one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.cluster import Request
from e2e.scenarios.fleet import RESTING, ROLLING, Bounds, Fleet, Roll
from e2e.scenarios.pod_history import PodHistory

USER = "system:serviceaccount:blockhouse-system:blockhouse-operator"
REPLICAS = [f"{ROLLING}-0-a-0", f"{ROLLING}-0-a-1"]
BEFORE = {**{name: f"{name} first" for name in REPLICAS}, f"{RESTING}-0-a-0": "untouched"}
AFTER = {**{name: f"{name} second" for name in REPLICAS}, f"{RESTING}-0-a-0": "untouched"}


def request(verb: str, resource: str, name: str = "", code: int = 201, user: str = USER) -> Request:
    return Request(user, verb, resource, "ns", name, code, "2026-01-01T00:00:00.000000Z")


ENDED = [request("create", "pods/eviction", f"{name}-0") for name in REPLICAS]
READ = [request("list", "pods", code=200)] * 4


def judged(requests: list[Request], *, after: dict[str, str] | None = None, down: frozenset[str] = frozenset()) -> None:
    def asked(since: int) -> Iterator[Request]:
        return iter(requests)

    def wait(what: str, condition: Any, timeout: float) -> None:
        assert condition(), what

    history = SimpleNamespace(present=lambda: AFTER if after is None else after, most_down=lambda: {"shard": down})
    fleet = SimpleNamespace(
        site=SimpleNamespace(wait=wait),
        cluster=SimpleNamespace(audit=SimpleNamespace(requests=asked)),
        heal=lambda: None,
    )
    Roll(cast(Fleet, fleet), cast(PodHistory, history), 0, BEFORE).judge(Bounds(writes=4, lists=6))


def test_a_restart_of_each_replica_once_is_accepted() -> None:
    refused_by_a_budget = request("create", "pods/eviction", f"{REPLICAS[0]}-0", 429)
    of_the_garbage_collector = request("delete", "pods", f"{REPLICAS[0]}-0", 200, "system:kube-controller-manager")
    renewed = [request("update", "leases", code=200)] * 50
    judged([*ENDED, *READ, refused_by_a_budget, of_the_garbage_collector, *renewed], down=frozenset(REPLICAS[:1]))


@pytest.mark.parametrize(
    "further",
    [
        [request("create", "pods/eviction", f"{REPLICAS[0]}-0")],
        [request("delete", "pods", f"{REPLICAS[0]}-0", 200)],
        [request("create", "pods/eviction", f"{RESTING}-0-a-0-0")],
        [request("patch", "blockaggregators/status", code=200)] * 3,
        [request("list", "pods", code=200)] * 3,
        [request("list", "nodes", code=403)],
    ],
    ids=["twice", "deleted", "another pipeline's", "storm of writes", "storm of lists", "forbidden"],
)
def test_what_is_asked_once_too_often_is_noticed(further: list[Request]) -> None:
    with pytest.raises(AssertionError):
        judged([*ENDED, *READ, *further])


def test_two_replicas_that_were_down_together_are_noticed() -> None:
    with pytest.raises(AssertionError, match="down at the same time"):
        judged([*ENDED, *READ], down=frozenset(REPLICAS))


def test_pods_that_are_the_old_ones_or_new_without_being_asked_are_noticed() -> None:
    with pytest.raises(AssertionError, match="is another one"):
        judged([*ENDED, *READ], after=BEFORE)
    with pytest.raises(AssertionError, match="nothing was asked"):
        judged([*ENDED, *READ], after={**AFTER, f"{RESTING}-0-a-0": "another"})
