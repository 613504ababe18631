"""Two releases of the operator do not serve the same zone of a namespace."""

from __future__ import annotations

import pytest

from blockhouse_operator.decide.scope import RENEW_SECONDS, SECONDS, Entry, claim

OURS, THEIRS = "system/ours", "system/theirs"


def test_zones_that_no_one_serves_are_claimed_and_renewed_when_due() -> None:
    first = claim(["a", "b"], OURS, {}, {}, 1000)
    assert first.entries == {"a": Entry(OURS, 1000), "b": Entry(OURS, 1000)}
    young, old = (dict.fromkeys("ab", age) for age in (RENEW_SECONDS - 1, RENEW_SECONDS))
    assert claim(["a", "b"], OURS, first.entries, young, 1059).entries is None
    again = claim(["a", "b"], OURS, first.entries, old, 1060).entries
    assert again == {"a": Entry(OURS, 1060), "b": Entry(OURS, 1060)}


@pytest.mark.parametrize("now", [0.0, 1000.0, 1e9], ids=["ahead of us", "as ours", "behind us"])
def test_a_zone_of_another_release_is_left_alone_with_all_others_until_it_has_ended(now: float) -> None:
    """Whatever its clock shows."""
    known = {"b": Entry(THEIRS, 1000)}
    found = claim(["a", "b"], OURS, known, {"b": SECONDS - 1}, now)
    assert found.foreign == {"b": THEIRS}
    assert found.entries is None
    taken = claim(["a", "b"], OURS, known, {"b": SECONDS}, now)
    assert not taken.foreign
    assert taken.entries is not None
    assert taken.entries["b"].holder == OURS


def test_releases_with_different_zones_keep_each_others_entries() -> None:
    known = {"b": Entry(THEIRS, 1000), "old": Entry(THEIRS, 0), "c": Entry(OURS, 0)}
    found = claim(["a"], OURS, known, {"b": 1.0, "old": SECONDS, "c": float("inf")}, 1001)

    assert found.entries == {"a": Entry(OURS, 1001), "b": Entry(THEIRS, 1000), "c": Entry(OURS, 0)}
