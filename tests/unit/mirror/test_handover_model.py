"""Every reachable world of a hand-over: sound with every rule, and harmed without any one of them.

`python -m tests.mirror_model` prints the same as stories.
"""

from __future__ import annotations

import pytest

from tests.mirror_model.explore import explore
from tests.mirror_model.scenarios import FROZEN, NEEDED, SOUND, without
from tests.mirror_model.world import RULES


def test_every_rule_has_a_setting_that_shows_why_it_is_needed() -> None:
    assert set(NEEDED) == RULES
    assert set(NEEDED.values()) <= set(SOUND.values()), "with the rule the same setting has to be sound"


@pytest.mark.parametrize("rule", NEEDED)
def test_without_the_rule_records_are_lost_or_doubled(rule: str) -> None:
    scenario = without(rule)
    found = explore(scenario.setting, scenario.kinds)
    assert found.harm is not None
    assert found.harm.startswith("LOSS" if rule in ("no-jump", "letter-first") else "DUPLICATE")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", SOUND)
def test_every_reachable_world_is_sound(name: str) -> None:
    scenario = SOUND[name]
    found = explore(scenario.setting, scenario.kinds)
    assert found.harm is None, "; ".join(found.story)
    assert found.handed_over > 0, "nothing was ever handed over and completed: the exploration proves nothing"


def test_a_process_that_is_frozen_past_its_grant_is_what_may_still_double() -> None:
    found = explore(FROZEN.setting, FROZEN.kinds)
    assert found.harm is not None
    assert found.harm.startswith("DUPLICATE")
    assert any(step.endswith("is frozen") for step in found.story)
