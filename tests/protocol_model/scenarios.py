"""For each rule the smallest setting in which its absence does harm; the same setting with every rule must be sound.

Then the larger ones, only with every rule: what is explored there is what the protocol promises.
"""

from __future__ import annotations

from dataclasses import replace

from tests.protocol_model.log import Log
from tests.protocol_model.world import RULES, Budget, Setting

_QUORUM = Budget(stuck_inserts=1, lost_writers=1)

NEEDED: dict[str, Setting] = {
    "intent-first": Setting(Log("AA"), budget=Budget(rebalances=1)),
    "boundary": Setting(Log("AA"), budget=Budget(rebalances=1)),
    "epoch": Setting(Log("AA"), budget=Budget(rebalances=1)),
    "rejoin": Setting(Log("AA"), budget=Budget(rebalances=1, unknown_commits=1)),
    "confirm": Setting(Log("A"), budget=_QUORUM._replace(rebalances=1), fine_reads=True),
    "ack": Setting(Log("A"), budget=_QUORUM),
    "provenance": Setting(Log("AA"), budget=Budget(stuck_inserts=1, full_windows=1), partitions=2),
    "lock": Setting(Log("A"), budget=Budget(rebalances=1, full_windows=1), fine_inserts=True),
    "lifetime": Setting(Log("A"), budget=Budget(rebalances=1, full_windows=1)),
    "limit": Setting(Log("AB"), room=1),
}

SOUND: dict[str, Setting] = {
    "two tables, a takeover": Setting(Log("ABA"), budget=Budget(rebalances=1)),
    "a takeover and a crash": Setting(Log("AA"), budget=Budget(rebalances=1, crashes=1)),
    "three takeovers and a crash": Setting(Log("A"), budget=Budget(rebalances=3, crashes=1)),
    "crash at any effect": Setting(Log("AA"), budget=Budget(crashes=1), fine_effects=True, fine_inserts=True),
    "lagging tables, bad messages, holes": Setting(Log("AaB-A!"), may_hold=True, may_cut=True, may_close=True),
    "takeovers, quorum, unknown commit": Setting(
        Log("A"), budget=_QUORUM._replace(rebalances=2, unknown_commits=1), fine_reads=True
    ),
    "quorum and window, half-written blocks": Setting(
        Log("AA"), budget=_QUORUM._replace(rebalances=1, full_windows=1), fine_inserts=True, partitions=2
    ),
    "every misfortune once": Setting(
        Log("A"),
        budget=_QUORUM._replace(rebalances=1, crashes=1, lost_sessions=1, full_windows=1),
        fine_effects=True,
        fine_reads=True,
        fine_inserts=True,
    ),
}


def without(rule: str) -> Setting:
    """The setting of `rule`, with that rule switched off."""
    return replace(NEEDED[rule], rules=RULES - {rule})
