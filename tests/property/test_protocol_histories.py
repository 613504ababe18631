"""Random histories of several owners: whatever happened, once it heals each message is stored exactly once.

Every history is a pure function of its seed, which a failure prints; replay it with
`python -m tests.protocol_model --seed N`.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol_model.moves import FAULTS, Kind
from tests.protocol_model.wander import wander
from tests.protocol_model.world import RULES

HISTORIES = 10_000


@pytest.mark.timeout(1200)
@settings(max_examples=HISTORIES, deadline=None, database=None)
@given(seed=st.integers(0, 2**40))
def test_every_message_is_stored_exactly_once_after_any_history(seed: int) -> None:
    walk = wander(seed)
    assert walk.harm is None, f"seed {seed}: {walk.harm}; replay with: python -m tests.protocol_model --seed {seed}"


def test_the_histories_are_rich() -> None:
    happened: Counter[Kind] = Counter()
    for seed in range(300):
        happened.update(move.kind for move, _ in wander(seed).story)
    rare = {kind.name: happened[kind] for kind in Kind if happened[kind] < 20}
    assert rare == {}, "a walk that never meets a misfortune proves nothing about it"
    assert sum(happened[kind] for kind in FAULTS) > 1_000


@pytest.mark.parametrize("rule", ["intent-first", "boundary", "epoch", "provenance", "lock", "limit"])
def test_the_oracle_sees_the_harm_done_without_a_rule(rule: str) -> None:
    harms = (wander(seed, RULES - {rule}).harm for seed in range(400))
    assert any(harm is not None and harm.startswith(("DUPLICATE", "LOSS")) for harm in harms)
