"""Two releases of the operator do not serve the same zone of a namespace."""

from __future__ import annotations

from blockhouse_operator.decide.scope import RENEW_SECONDS, SECONDS, Entry, claim

OURS, THEIRS = "system/ours", "system/theirs"


def test_zones_that_no_one_serves_are_claimed_and_renewed_when_due() -> None:
    first = claim(["a", "b"], OURS, {}, 1000)
    assert first.entries == {"a": Entry(OURS, 1000), "b": Entry(OURS, 1000)}
    assert claim(["a", "b"], OURS, first.entries, 1000 + RENEW_SECONDS - 1).entries is None
    again = claim(["a", "b"], OURS, first.entries, 1000 + RENEW_SECONDS).entries
    assert again == {"a": Entry(OURS, 1000 + RENEW_SECONDS), "b": Entry(OURS, 1000 + RENEW_SECONDS)}


def test_a_zone_of_another_release_is_left_alone_with_all_others_until_it_has_ended() -> None:
    known = {"b": Entry(THEIRS, 1000)}
    found = claim(["a", "b"], OURS, known, 1000 + SECONDS - 1)
    assert found.foreign == {"b": THEIRS}
    assert found.entries is None
    taken = claim(["a", "b"], OURS, known, 1000 + SECONDS)
    assert not taken.foreign
    assert taken.entries is not None
    assert taken.entries["b"].holder == OURS


def test_releases_with_different_zones_keep_each_others_entries() -> None:
    found = claim(["a"], OURS, {"b": Entry(THEIRS, 1000), "old": Entry(THEIRS, 0)}, 1001)

    assert found.entries == {"a": Entry(OURS, 1001), "b": Entry(THEIRS, 1000)}
