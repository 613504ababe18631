"""What a seed does to a rollout, and how far behind a table was."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from blockhouse.schema.history import extend, first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from e2e.rollouts.lags import Aged, TableLags, first_stored
from e2e.rollouts.load import MixedPool
from e2e.rollouts.plan import plan, requests

REPLICAS = ("r1", "r2", "r3", "r4")


def test_a_rollout_is_a_barrier_and_a_restart_of_each_replica() -> None:
    assert requests(2, restarts=False) == [("hold", 1), ("apply", 1), ("release", 1)]
    assert requests(2, restarts=True)[3:] == [("restart", 1), ("restart", 2)]


def test_a_few_seeds_in_a_row_kill_all_owners_and_most_of_them_within_the_barrier() -> None:
    kills = [plan(seed, REPLICAS, restarts=True) for seed in range(300)]
    assert kills == [plan(seed, REPLICAS, restarts=True) for seed in range(300)]
    assert [kill.victim.split("-")[0] for kill in kills[:3]] == ["aggregator", "clickhouse", "operator"]
    assert len({kill.victim for kill in kills}) == 1 + 2 * len(REPLICAS)
    assert {(kill.request, kill.number) for kill in kills} == set(requests(len(REPLICAS), restarts=True))
    assert Counter(kill.request == "restart" for kill in kills)[False] > 150
    assert all(kill.delay == 0 for kill in kills if kill.victim == "operator"), "it dies at the very request"


BLOCKS = (Aged("d.t", made=10.0, at=12.0), Aged("d.t", made=11.0, at=16.0), Aged("d.other", made=1.0, at=15.0))


@pytest.mark.parametrize(
    ("begin", "end", "seconds"),
    [
        (0.0, 99.0, 5.0),
        (0.0, 12.0, 2.0),
        (13.0, 13.5, 2.5),  # nothing was stored meanwhile: that is what being behind looks like
        (0.0, 9.0, 0.0),
        (17.0, 99.0, 0.0),
    ],
)
def test_a_table_is_furthest_behind_when_a_block_is_stored_or_the_time_is_over(
    begin: float, end: float, seconds: float
) -> None:
    assert TableLags(BLOCKS).peak(["d.t"], begin, end) == seconds


def test_which_block_of_which_tables_was_behind_the_most_is_reported() -> None:
    lags = TableLags(BLOCKS)
    assert lags.furthest(["d.t", "d.other"], 0.0, 99.0) == BLOCKS[2]
    assert lags.furthest(["d.t"], 0.0, 99.0) == BLOCKS[1]
    assert lags.furthest(["d.t"], 17.0, 99.0) is None
    assert lags.percentile(["d.t", "d.other"], 0.0, 99.0, 50) == 5.0
    assert lags.percentile(["d.none"], 0.0, 99.0, 50) == 0.0


def test_a_block_that_the_next_owner_receives_again_was_stored_the_first_time() -> None:
    line = {"stream": "a/t/0", "table": "d.t", "begin": 5}
    late, early = "2026-01-02T03:04:07.500000Z", "2026-01-02T03:04:06.000000Z"
    (block,) = first_stored([line | {"timestamp": late}, line | {"timestamp": early}])
    assert block.at == datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC).timestamp()


def history(*columns: str) -> TableHistory:
    found = [ServerColumn(name=name, type="UInt64") for name in columns]
    return TableHistory(id=1, name="d.t", revisions=(first_revision(found),))


def test_producers_of_both_revisions_send_alternately_and_their_rows_can_be_distinguished() -> None:
    old = history("id")
    pool = MixedPool(old, 6)
    assert {(pool.message(1), pool.headers["schema"])[1] for _ in range(4)} == {"1"}
    columns = [ServerColumn(name=name, type="UInt64") for name in ("id", "more")]
    pool.add(extend(old, columns))
    sent = [(pool.message(1), pool.headers["schema"]) for _ in range(6)]
    assert [revision for _, revision in sent] == ["2", "1"] * 3
    assert pool.seeds == (6, 7)
