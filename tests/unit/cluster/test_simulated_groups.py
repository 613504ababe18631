"""Streams among simulated aggregators: owned once, evenly, and moved no more than needed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from blockhouse.streams import StreamId
from e2e.simulator.groups import REPLAY_SECONDS, Group

TWO = {("a", "t"): 4, ("b", "t"): 4}


def test_all_streams_are_owned_once_and_evenly_in_each_cluster() -> None:
    group = Group()
    group.rebalance(["r1", "r2"], TWO, now=0)
    assert set(group.owned) == {StreamId(c, "t", n) for c in "ab" for n in range(4)}
    assert Counter((s.cluster, o.member) for s, o in group.owned.items()) == Counter(
        {(c, m): 2 for c in "ab" for m in ("r1", "r2")}
    )


def test_only_the_streams_of_a_member_that_left_move() -> None:
    group = Group()
    group.rebalance(["r1", "r2", "r3"], {("a", "t"): 6}, now=0)
    before = dict(group.owned)
    group.rebalance(["r1", "r2"], {("a", "t"): 6}, now=100)
    for stream, owned in group.owned.items():
        assert owned == before[stream] or before[stream].member == "r3"


def test_a_stream_that_moved_replays_first() -> None:
    group = Group()
    group.rebalance(["r1"], {("a", "t"): 1}, now=10)
    (owned,) = group.of("r1")
    assert owned.phase(10) == "REPLAY"
    assert owned.phase(10 + REPLAY_SECONDS) == "CONSUME"


def test_without_live_members_no_stream_has_an_owner() -> None:
    group = Group()
    group.rebalance(["r1"], TWO, now=0)
    group.rebalance([], TWO, now=1)
    assert group.owned == {}


@given(st.lists(st.tuples(st.sets(st.sampled_from("pqrstu")), st.integers(0, 9)), max_size=8))
def test_whatever_happens_before_every_stream_has_a_living_owner_and_none_too_many(
    history: list[tuple[set[str], int]],
) -> None:
    group = Group()
    for now, (members, count) in enumerate(history):
        group.rebalance(members, {("a", "t"): count}, now=now)
        assert len(group.owned) == (count if members else 0)
        loads = Counter(owned.member for owned in group.owned.values())
        assert set(loads) <= members
        if members:
            assert max(loads.values(), default=0) <= -(-count // len(members))
