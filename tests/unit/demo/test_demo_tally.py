"""Counters over several lives of a process, and what a status page shows."""

from __future__ import annotations

from prometheus_client import generate_latest

from blockhouse.contract.aggregator import Phase
from blockhouse_aggregator.runtime.figures import Figures
from e2e.kit.tally import COUNTERS, Tally, read_counters
from e2e.kit.watch import BlockInFlight, read_status
from tests.contract_values import block, lagging, page, stream


def test_every_counter_is_one_the_aggregator_has_and_labels_are_summed() -> None:
    figures = Figures()
    figures.rows.labels("db.a").inc(10)
    figures.rows.labels("db.b").inc(5)
    figures.replays.labels("a", "t", "0").inc(2)
    page = generate_latest(figures.registry).decode()

    counters = read_counters(page)

    assert counters == {**dict.fromkeys(COUNTERS, 0), "rows": 15, "replays": 2}
    for name in COUNTERS:
        assert f"# TYPE blockhouse_{name}_total counter" in page


def test_what_a_killed_process_counted_is_added_to_what_its_successor_counts() -> None:
    tally = Tally()
    tally.note("r1", 100, {"rows": 7})
    tally.note("r1", 200, {"rows": 3})
    tally.note("r2", 300, {"rows": 1})

    assert tally.total("rows") == 11
    assert tally.total("rows", "r1") == 10
    assert tally.total("replays") == 0


def test_the_difference_of_two_totals_is_what_was_counted_in_between() -> None:
    tally = Tally()
    tally.note("r1", 100, {"rows": 7, "replays": 2})
    before = tally.totals()
    tally.note("r1", 100, {"rows": 9, "replays": 2})
    tally.note("r1", 200, {"rows": 3, "replays": 1})

    between = tally.totals() - before

    assert (between["rows"], between["replays"], between["deduplicated"]) == (5, 1, 0)


def test_an_answer_that_was_overtaken_takes_nothing_back() -> None:
    tally = Tally()
    tally.note("r1", 100, {"rows": 7})
    tally.note("r1", 100, {"rows": 5})

    assert tally.total("rows") == 7


def test_a_status_page_becomes_what_the_demonstration_looks_for() -> None:
    known = stream("a/events/0", lag=4, in_flight=(block(3, "db.t", end=9),), lagging=(lagging(1, "db.late"),))
    found = page(known, stream("b/events/0", Phase.STARTING))

    seen = read_status("r1", "ready", found)

    assert seen.streams == {"a/events/0": "CONSUME", "b/events/0": "STARTING"}
    assert seen.lags == {"a/events/0": 4}, "a stream that is not taken over has no lag, not a lag of nothing"
    assert seen.in_flight == (BlockInFlight("a/events/0", "db.t", 3, 9, "inserting"),)
    assert seen.waiting_tables == {"db.late"}


def test_a_silent_aggregator_owns_nothing() -> None:
    seen = read_status("r1", "frozen", None)

    assert (seen.streams, seen.lag, seen.in_flight) == ({}, 0, ())
