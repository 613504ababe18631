"""Credentials are replaced by overlap: at every moment, what one side uses the other accepts."""

from __future__ import annotations

from blockhouse_operator.decide import credentials
from blockhouse_operator.decide.credentials import OVERLAP_SECONDS
from blockhouse_operator.desired.credentials import Credentials

FRESH = ("token-2", "password-2")
START = Credentials("token-1", ("password-1", ""))
LATER = OVERLAP_SECONDS + 1


def rotated(
    now: Credentials, demand: str, at: float, fresh: tuple[str, str] = FRESH, *, password: bool = True
) -> Credentials:
    """By an operator that has seen every step begin."""
    return credentials.rotated(now, demand, at, fresh, waited=at - now.since, password=password)


def test_nothing_changes_without_a_new_demand() -> None:
    assert rotated(START, "", 0, FRESH) == START
    assert rotated(Credentials("t", ("p", ""), demand="monday"), "monday", 0, FRESH).token == "t"


def test_a_password_is_accepted_before_it_is_used_and_used_before_the_old_one_ends() -> None:
    accepted = rotated(START, "monday", 0, FRESH)
    assert accepted.of_cluster == {"cluster": "password-1", "cluster-b": "password-2"}
    assert next(iter(accepted.of_cluster)) == "cluster", "the old one is used"
    assert (accepted.token, accepted.former_token) == ("token-2", "token-1")

    assert rotated(accepted, "monday", OVERLAP_SECONDS - 1, FRESH) == accepted, "some may not have read it yet"
    used = rotated(accepted, "monday", LATER, FRESH)
    assert list(used.of_cluster) == ["cluster-b", "cluster"]
    assert used.former_token == "token-1"

    assert rotated(used, "monday", LATER + OVERLAP_SECONDS - 1, FRESH) == used
    over = rotated(used, "monday", 2 * LATER, FRESH)
    assert over.of_cluster == {"cluster-b": "password-2"}
    assert (over.token, over.former_token, over.step) == ("token-2", "", "")


def test_at_every_step_what_was_used_before_is_still_accepted() -> None:
    state, at = START, 0.0
    for demand in ("one", "two", "three"):
        for step in range(3):
            before = state
            state = rotated(state, demand, at, (f"t-{demand}", f"p-{demand}"))
            used = next(iter(before.of_cluster.items()))
            if step < 2:
                assert used in state.of_cluster.items()
                assert before.token in (state.token, state.former_token)
            at += LATER
    assert len(state.of_cluster) == 1


def test_a_step_lasts_whatever_the_clock_of_the_next_operator_shows() -> None:
    """A password is not used before every server can have read it."""
    accepted = rotated(START, "monday", 0)
    for at in (-900.0, 900.0):
        assert credentials.rotated(accepted, "monday", at, FRESH, waited=1.0) == accepted


def test_a_demand_during_a_rotation_waits_for_its_end() -> None:
    accepted = rotated(START, "one", 0, FRESH)
    used = rotated(accepted, "two", LATER, ("x", "y"))
    assert used.token == "token-2"
    over = rotated(used, "two", 2 * LATER, ("x", "y"))
    assert rotated(over, "two", 2 * LATER, ("x", "y")).token == "x"


def test_a_password_that_a_person_gave_is_theirs_to_change() -> None:
    state = rotated(START, "one", 0, FRESH, password=False)
    assert state.of_cluster == START.of_cluster
    for at in (LATER, 2 * LATER):
        state = rotated(state, "one", at, FRESH, password=False)
    assert state.of_cluster == START.of_cluster
    assert state.token == "token-2"


def test_no_secret_is_shown() -> None:
    assert "password-1" not in repr(START)
    assert "token-1" not in repr(START)
