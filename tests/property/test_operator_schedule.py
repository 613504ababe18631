"""Whatever is added, hinted, taken, ended and failed in whatever order: no turn is lost, none is early, none starves.

`Judge` keeps, beside the schedule, what each key was promised; it knows nothing of queues. A failure prints its seed.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from blockhouse_operator.reconcile.schedule import LONGEST_BACKOFF, LONGEST_REST, Schedule

KEYS = ("pipeline-0", "pipeline-1", "shard-0", "shard-1", "shard-2", "shard-3", "shard-4")
PATIENCE = LONGEST_BACKOFF + LONGEST_REST
"""Seconds that a key may at most be kept from being due by a back-off or a rest."""

DEEDS = ("add", "hint", "take", "finish", "fail", "pass")
DELAYS = (0.0, 0.0, 0.3, 1.0, 4.0, 20.0)


def goes_first(key: str) -> bool:
    return key.startswith("pipeline")


def longest_rest(key: str) -> float:
    return LONGEST_REST if goes_first(key) else 0.0


class Judge:
    """A schedule and the promises it has to keep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.keys: Schedule[str] = Schedule(lambda: 0.5, goes_first)
        self.asked: dict[str, float] = {}
        """Keys that were promised a reconcile, and when they were asked for at the earliest."""
        self.overtaken: dict[str, int] = {}
        """Reconciles of others that began while the key was due and not at work."""
        self.firm: dict[str, float] = {}
        """When each key that was added is due."""
        self.hinted: dict[str, float] = {}
        """When each key that was hinted at is due at the latest."""
        self.begun: dict[str, float] = {}

    def do(self, what: str, key: str, seconds: float) -> None:
        match what:
            case "add":
                self.keys.add(key, self.now + seconds)
                self._promise(self.firm, key, self.now + seconds)
            case "hint":
                self.keys.hint(key, self.now + seconds)
                self._promise(self.hinted, key, self.now + seconds, longest_rest(key))
            case "take":
                self.take()
            case "finish" if key in self.begun:
                self._end(key)
                self.keys.finish(key, self.now)
            case "fail" if key in self.begun:
                self._end(key)
                delay = self.keys.fail(key, self.now)
                self._promise(self.firm, key, self.now + delay)
            case "pass":
                self.now += seconds

    def take(self) -> str | None:
        promised = [*self.firm.items(), *self.hinted.items()]
        due = {key for key, at in promised if at <= self.now and key not in self.begun}
        taken = self.keys.take(self.now)
        if taken is None:
            assert not due, f"{due} are due and none is taken"
            return None
        assert taken not in self.begun, f"{taken} has two reconciles at once"
        assert self.asked[taken] <= self.now, f"{taken} was asked for at {self.asked[taken]}, not at {self.now}"
        for key in due - {taken}:
            self.overtaken[key] = self.overtaken.get(key, 0) + 1
            alike = sum(goes_first(other) == goes_first(key) for other in KEYS)
            assert self.overtaken[key] <= 2 * alike - 1, f"{key} starves"
        for known in (self.asked, self.firm, self.hinted, self.overtaken):
            known.pop(taken, None)
        self.begun[taken] = self.now
        return taken

    def rest(self) -> None:
        """All end; a promised key has its reconcile within the longest of all delays, and then all is quiet."""
        for key in sorted(self.begun):
            self._end(key)
            self.keys.finish(key, self.now)
        self.now += PATIENCE
        for _ in range(len(KEYS)):
            taken = self.take()
            if taken is not None:
                self._end(taken)
                self.keys.finish(taken, self.now)
        assert not self.asked, f"the reconciles of {sorted(self.asked)} were lost"
        assert len(self.keys) == 0
        assert self.keys.next_at() is None

    def _promise(self, promises: dict[str, float], key: str, at: float, rest: float = 0.0) -> None:
        self.asked[key] = min(at, self.asked.get(key, at))
        promises[key] = min(at + rest, promises.get(key, at + rest))

    def _end(self, key: str) -> None:
        """A hint during a reconcile counts from its end on."""
        del self.begun[key]
        if key in self.hinted:
            self.hinted[key] = max(self.hinted[key], self.now + longest_rest(key))


@settings(max_examples=600, deadline=None, database=None)
@given(seed=st.integers(0, 2**40))
def test_no_turn_is_lost_or_early_or_given_twice_at_once_and_no_key_starves(seed: int) -> None:
    chance, judge = Random(seed), Judge()
    weights = [chance.choice((0.2, 1, 5)) for _ in DEEDS]
    """Each world has its own habits: else no key would ever be overtaken often."""
    try:
        for what in chance.choices(DEEDS, weights, k=200):
            key = chance.choice(sorted(judge.begun) or KEYS) if what in ("finish", "fail") else chance.choice(KEYS)
            judge.do(what, key, chance.choice(DELAYS))
            waiting = [key for key in judge.asked if key not in judge.begun]
            assert (judge.keys.next_at() is not None) == bool(waiting), "a waiting key has a time to wake up for it"
        judge.rest()
    except AssertionError as error:
        raise AssertionError(f"SEED={seed}") from error


@settings(max_examples=300, deadline=None)
@given(turns=st.lists(st.integers(0, 40), min_size=1, max_size=30), gap=st.integers(0, 3))
def test_between_reconciles_that_hints_ask_for_a_key_that_goes_first_rests_three_times_as_long_up_to_a_limit(
    turns: list[int], gap: int
) -> None:
    keys: Schedule[str] = Schedule(lambda: 0.5, goes_first)
    now = 0.0
    keys.hint("pipeline-0", now)
    for length in turns:
        assert keys.take(now) == "pipeline-0"
        keys.hint("pipeline-0", now + gap)
        now += length
        keys.finish("pipeline-0", now)
        keys.hint("pipeline-0", now + gap)
        due = keys.next_at()
        assert due is not None
        assert min(3.0 * length, LONGEST_REST) <= due - now <= LONGEST_REST
        now = due
