"""What a seed does to a rollout, and how old a table's oldest message is."""

from __future__ import annotations

from collections import Counter

import pytest

from blockhouse.schema.history import extend, first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from e2e.rollouts.lags import age
from e2e.rollouts.load import MixedPool
from e2e.rollouts.plan import plan, requests

REPLICAS = ("r1", "r2", "r3", "r4")


def test_a_rollout_is_a_barrier_and_a_restart_of_each_replica() -> None:
    assert requests(2, restarts=False) == [("hold", 1), ("apply", 1), ("release", 1)]
    assert requests(2, restarts=True)[3:] == [("restart", 1), ("restart", 2)]


def test_a_few_seeds_in_a_row_kill_everybody_and_most_of_them_within_the_barrier() -> None:
    kills = [plan(seed, REPLICAS, restarts=True) for seed in range(300)]
    assert kills == [plan(seed, REPLICAS, restarts=True) for seed in range(300)]
    assert [kill.victim.split("-")[0] for kill in kills[:3]] == ["aggregator", "clickhouse", "operator"]
    assert len({kill.victim for kill in kills}) == 1 + 2 * len(REPLICAS)
    assert {(kill.request, kill.number) for kill in kills} == set(requests(len(REPLICAS), restarts=True))
    assert Counter(kill.request == "restart" for kill in kills)[False] > 150
    assert all(kill.delay == 0 for kill in kills if kill.victim == "operator"), "it dies at the very request"


@pytest.mark.parametrize(
    ("stored", "seconds"),
    [(10, 8.0), (12, 8.0), (24, 8.0), (25, 7.0), (39, 7.0), (40, 0.0), (99, 0.0), (0, 8.0)],
)
def test_a_message_is_as_old_as_the_last_look_before_it_came(stored: int, seconds: float) -> None:
    """Ends 10, 25 and 40 at 1, 2 and 3 s: the message at 12 came after 1 s. What came before the first look is taken
    for as old as that."""
    assert age([1.0, 2.0, 3.0], [10, 25, 40], stored, now=9.0) == seconds


def test_nothing_is_behind_before_anything_is_known() -> None:
    assert age([], [], 0, now=9.0) == 0.0


def history(*columns: str) -> TableHistory:
    found = [ServerColumn(name=name, type="UInt64") for name in columns]
    return TableHistory(id=1, name="d.t", revisions=(first_revision(found),))


def test_producers_of_both_revisions_send_in_turn_and_their_rows_can_be_told_apart() -> None:
    old = history("id")
    pool = MixedPool(old, 6)
    assert {(pool.message(1), pool.headers["schema"])[1] for _ in range(4)} == {"1"}
    columns = [ServerColumn(name=name, type="UInt64") for name in ("id", "more")]
    pool.add(extend(old, columns))
    sent = [(pool.message(1), pool.headers["schema"]) for _ in range(6)]
    assert [revision for _, revision in sent] == ["2", "1"] * 3
    assert pool.seeds == (6, 7)
