"""Reconciles of keys, with the test as the clock."""

from __future__ import annotations

import heapq
from random import Random

import pytest

from blockhouse_operator.reconcile.schedule import (
    FIRST_BACKOFF,
    LONGEST_BACKOFF,
    LONGEST_REST,
    REST_PER_RECONCILE,
    SHORTEST_REST,
    STEPS_OF_RESYNC,
    Schedule,
    spread,
)


def schedule(chance: float = 0.0) -> Schedule[str]:
    return Schedule(lambda: chance)


def test_a_key_added_twice_is_reconciled_once_at_the_earlier_time() -> None:
    keys = schedule()
    keys.add("a", 5)
    keys.add("a", 3)
    keys.add("a", 9)

    assert keys.take(2.9) is None
    assert keys.take(3) == "a"
    keys.finish("a", 3)
    assert keys.take(100) is None


def test_a_key_added_during_its_reconcile_waits_for_its_end_and_is_reconciled_again() -> None:
    keys = schedule()
    keys.add("a", 0)
    assert keys.take(0) == "a"
    keys.add("a", 1)

    assert keys.take(1) is None
    assert keys.next_at() is None, "no one may be woken for a key that is at work"
    keys.finish("a", 1)
    assert keys.next_at() == 1
    assert keys.take(1) == "a"


def test_a_key_at_work_does_not_hold_up_others() -> None:
    keys = schedule()
    keys.add("a", 0)
    keys.take(0)
    keys.add("a", 0)
    keys.add("b", 1)

    assert keys.take(1) == "b"


def test_keys_due_together_have_their_turns_in_the_order_they_came() -> None:
    keys = schedule()
    for key in ("c", "a", "b"):
        keys.add(key, 0)

    assert [keys.take(0) for _ in range(3)] == ["c", "a", "b"]


def test_failures_double_the_delay_up_to_a_limit_and_a_success_forgets_them() -> None:
    keys, now, delays = schedule(chance=1.0), 0.0, []
    keys.add("a", 0)
    for _ in range(12):
        assert keys.take(now) == "a"
        delays.append(keys.fail("a", now))
        now += delays[-1]

    assert delays[:4] == [FIRST_BACKOFF * 2**n for n in range(4)]
    assert delays[-1] == LONGEST_BACKOFF
    assert keys.take(now) == "a"
    keys.finish("a", now)
    keys.add("a", now)
    keys.take(now)
    assert keys.fail("a", now) == FIRST_BACKOFF


def test_jitter_takes_at_most_half_and_a_servers_wish_is_kept() -> None:
    keys = schedule(chance=0.0)
    keys.add("a", 0)
    keys.take(0)
    assert keys.fail("a", 0) == FIRST_BACKOFF / 2
    keys.take(1)
    assert keys.fail("a", 1, at_least=30) == 30


def test_an_event_does_not_wait_for_the_back_off() -> None:
    keys = schedule()
    keys.add("a", 0)
    keys.take(0)
    keys.fail("a", 0, at_least=60)
    keys.add("a", 1)

    assert keys.take(1) == "a"


def test_a_forgotten_key_is_reconciled_no_more() -> None:
    keys = schedule()
    keys.add("a", 0)
    keys.forget("a")

    assert keys.take(1) is None
    assert len(keys) == 0


def pipelines_first() -> Schedule[str]:
    return Schedule(lambda: 0.0, lambda key: key.startswith("pipeline"))


def test_a_key_that_goes_first_does_not_wait_for_those_that_were_due_before() -> None:
    keys = pipelines_first()
    for number in range(200):
        keys.add(f"shard-{number}", 0)
    keys.add("pipeline", 1)

    assert keys.take(1) == "pipeline"
    assert keys.take(1) == "shard-0"


def test_where_many_go_first_the_others_have_every_second_reconcile() -> None:
    keys = pipelines_first()
    for number in range(4):
        keys.add(f"pipeline-{number}", 0)
    for number in range(3):
        keys.add(f"shard-{number}", 0)

    taken = [keys.take(1) for _ in range(7)]

    assert taken == ["pipeline-0", "shard-0", "pipeline-1", "shard-1", "pipeline-2", "shard-2", "pipeline-3"]


def test_who_goes_first_rests_in_proportion_to_its_reconcile_before_a_hint_counts() -> None:
    for length, rest in ((0.01, SHORTEST_REST), (2.0, 2 * REST_PER_RECONCILE), (600.0, LONGEST_REST)):
        keys = pipelines_first()
        keys.add("pipeline", 0)
        keys.take(0)
        keys.hint("pipeline", length / 2)  # during its reconcile
        keys.finish("pipeline", length)
        keys.hint("pipeline", length + 0.3)  # while it rests

        assert keys.next_at() == length + rest
        assert keys.take(length + rest) == "pipeline"
        keys.finish("pipeline", length + rest)
        assert keys.take(length + 1000) is None, "hints meanwhile are one"


def test_a_change_of_its_own_spec_ends_the_rest() -> None:
    keys = pipelines_first()
    keys.add("pipeline", 0)
    keys.take(0)
    keys.finish("pipeline", 4)
    keys.hint("pipeline", 5)
    keys.add("pipeline", 5)

    assert keys.take(5) == "pipeline"


def test_hints_do_not_end_a_failures_back_off_sooner_than_the_rest() -> None:
    keys = pipelines_first()
    keys.add("pipeline", 0)
    keys.take(0)
    keys.fail("pipeline", 2, at_least=60)
    keys.hint("pipeline", 3)

    assert keys.next_at() == 2 + 2 * REST_PER_RECONCILE


def test_the_others_do_not_rest() -> None:
    keys = pipelines_first()
    keys.add("shard", 0)
    keys.take(0)
    keys.finish("shard", 10)
    keys.hint("shard", 10.3)

    assert keys.take(10.3) == "shard"


def test_of_200_busy_shards_their_pipeline_hears_at_once_and_takes_a_quarter_of_a_worker_at_most() -> None:
    """Eight workers; a shard's reconcile takes 5 s and changes it, the pipeline's 2 s; its spec changes at 300 s."""
    heard, share = followed(pipelines_first())
    before, _ = followed(Schedule(lambda: 0.0))

    assert heard <= 5, "the first worker that is free takes it"
    assert before > 60, "without going first it waits for all shards"
    assert share <= 1 / (1 + REST_PER_RECONCILE)


def followed(keys: Schedule[str]) -> tuple[float, float]:
    """Seconds until the change of the spec is reconciled, and the share of one worker that the pipeline took."""
    for number in range(200):
        keys.add(f"shard-{number}", number / 1000)
    keys.add("pipeline", 0)
    changed, ended, workers, spent = 300.0, 900.0, [0.0] * 8, 0.0
    at_work: list[tuple[float, str]] = []
    added, heard = False, None
    while workers[0] < ended:
        now = heapq.heappop(workers)
        while at_work and at_work[0][0] <= now:
            over, key = heapq.heappop(at_work)
            keys.finish(key, over)
            if key != "pipeline":
                keys.add(key, over + 5)
                keys.hint("pipeline", over + 0.3)
        if now >= changed and not added:
            keys.add("pipeline", changed)
            added = True
        taken = keys.take(now)
        if taken == "pipeline" and added and heard is None:
            heard = now - changed
        length = 0.1 if taken is None else 2.0 if taken == "pipeline" else 5.0
        spent += length if taken == "pipeline" else 0.0
        if taken is not None:
            heapq.heappush(at_work, (now + length, taken))
        heapq.heappush(workers, now + length)
    assert heard is not None
    return heard, spent / ended


def test_idle_resources_come_back_some_at_a_time_and_others_alone() -> None:
    chance, now, resync = Random(7), 1000.3, 60.0

    idle = [now + spread(resync, resync, now, chance) for _ in range(200)]
    soon = [spread(5.0, resync, now, chance) for _ in range(200)]

    assert now + resync <= min(idle)
    assert max(idle) <= now + 1.2 * resync + resync / STEPS_OF_RESYNC
    moments = {round(moment, 6) for moment in idle}
    assert 6 <= len(moments) <= 8, "12 s in steps of 2 s"
    assert all(moment % 2 == pytest.approx(0) for moment in moments)
    assert all(5.0 <= seconds < 6.0 for seconds in soon)
    assert len(set(soon)) == 200
