"""Turns of keys, with the test as the clock."""

from __future__ import annotations

from blockhouse_operator.reconcile.schedule import FIRST_BACKOFF, LONGEST_BACKOFF, Schedule


def schedule(chance: float = 0.0) -> Schedule[str]:
    return Schedule(lambda: chance)


def test_a_key_added_twice_has_one_turn_at_the_earlier_time() -> None:
    keys = schedule()
    keys.add("a", 5)
    keys.add("a", 3)
    keys.add("a", 9)

    assert keys.take(2.9) is None
    assert keys.take(3) == "a"
    keys.finish("a")
    assert keys.take(100) is None


def test_a_key_added_during_its_turn_waits_for_its_end_and_gets_another() -> None:
    keys = schedule()
    keys.add("a", 0)
    assert keys.take(0) == "a"
    keys.add("a", 1)

    assert keys.take(1) is None
    assert keys.next_at() is None, "nobody may be woken for a key that is at work"
    keys.finish("a")
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
    keys.finish("a")
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


def test_a_forgotten_key_has_no_more_turns() -> None:
    keys = schedule()
    keys.add("a", 0)
    keys.forget("a")

    assert keys.take(1) is None
    assert len(keys) == 0
