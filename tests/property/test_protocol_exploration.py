"""Every reachable world of small settings: sound with every rule, and harmed without any one of them.

`python -m tests.protocol_model` prints the same as stories.
"""

from __future__ import annotations

import pytest

from tests.protocol_model.explore import explore
from tests.protocol_model.scenarios import NEEDED, SOUND, without
from tests.protocol_model.world import RULES

MOST = 150_000
"""Worlds; a setting that outgrows this has become too slow for every day."""


def test_every_rule_has_a_setting_that_shows_why_it_is_needed() -> None:
    assert set(NEEDED) == RULES


@pytest.mark.timeout(180)
@pytest.mark.parametrize("rule", NEEDED)
def test_without_the_rule_rows_are_lost_or_doubled(rule: str) -> None:
    found = explore(without(rule), MOST)
    assert found.harm is not None
    assert found.harm.startswith(("DUPLICATE", "LOSS"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", [*NEEDED, *SOUND])
def test_with_every_rule_every_reachable_world_is_sound(name: str) -> None:
    found = explore((NEEDED | SOUND)[name], MOST)
    assert found.harm is None, found.story
    assert found.complete > 0, "never stored everything: the exploration proves nothing"
