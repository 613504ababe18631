"""For each rule the setting in which its absence does harm; and settings that are sound with every rule, these among
them."""

from __future__ import annotations

from typing import NamedTuple

from tests.mirror_model.world import RULES, Setting

ALL = ("LOSS", "DUPLICATE", "ORDER")


class Scenario(NamedTuple):
    """`kinds` are the kinds of harm that must not be."""

    setting: Setting
    kinds: tuple[str, ...] = ALL


NEEDED: dict[str, Scenario] = {
    "self-end": Scenario(Setting("rr")),
    "grant": Scenario(Setting("rr")),
    "wire": Scenario(Setting("rr")),
    "confirm": Scenario(Setting("rr")),
    "tail": Scenario(Setting("rr")),
    "no-jump": Scenario(Setting("rr", gaps=True), ("LOSS",)),
    "letter-first": Scenario(Setting("rfr")),
    "marker": Scenario(Setting("rr", replaced=True)),
    "once-granted": Scenario(Setting("rr")),
}
SOUND: dict[str, Scenario] = {
    "every hand-over": Scenario(Setting("rr")),
    "a hole, a record that came from the target": Scenario(Setting("r.xr")),
    "a record that is refused": Scenario(Setting("rfr")),
    "another driver": Scenario(Setting("rr", replaced=True)),
    "AtLeastOnce loses nothing": Scenario(Setting("rr", RULES - {"tail"}), ("LOSS",)),
    "records that expire": Scenario(Setting("rr", gaps=True), ("LOSS",)),
    "a frozen process loses nothing": Scenario(Setting("r", freeze=True), ("LOSS",)),
}
FROZEN = Scenario(Setting("r", freeze=True))
"""What no rule prevents, as docs/mirror.md states: what a process frozen past its grant sends when it is thawed."""


def without(rule: str) -> Scenario:
    """The setting of `rule`, with that rule switched off."""
    needed = NEEDED[rule]
    return needed._replace(setting=needed.setting._replace(rules=RULES - {rule}))
