"""What a shard waits for is logged when it changes, and not again while it stays."""

from __future__ import annotations

from structlog.testing import capture_logs

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.decide.deferred import RestartDeferred
from blockhouse_operator.reconcile.waits import Waits

PLACE = ("data", "events-0")


def test_a_wait_is_logged_when_it_begins_changes_and_ends() -> None:
    waits = Waits()
    replica = RestartDeferred(
        Reason.ROLLING_OUT, "events-0-a-0 is to restart; waiting for events-0-a-1, which is MISSING"
    )
    other = RestartDeferred(
        Reason.ROLLING_OUT, "events-0-a-0 is to restart; waiting for events-0-b-0, which is MISSING"
    )
    with capture_logs() as logged:
        for holds in ([], [replica], [replica], [other], [other], [], []):
            waits.note(PLACE, holds)
    assert [line["event"] for line in logged] == ["waiting", "waiting", "waiting_no_more"]
    assert [line["log_level"] for line in logged] == ["info"] * 3
    assert logged[0]["why"] == [f"RollingOut: {replica.why}"]


def test_progress_is_no_other_wait() -> None:
    waits = Waits()
    with capture_logs() as logged:
        for left in ("3,000 bytes", "2,500 bytes", "12 bytes"):
            waits.note(
                PLACE,
                [RestartDeferred(Reason.REBUILDING, f"replica events-0-a-0 is rebuilt from others: {left} remain")],
            )
    assert len(logged) == 1


def test_a_shard_that_is_created_again_is_logged_again() -> None:
    waits, hold = Waits(), RestartDeferred(Reason.PAUSED, "events-0-a-0 is to restart; spec.rollout.paused is true")
    with capture_logs() as logged:
        waits.note(PLACE, [hold])
        waits.forget(PLACE)
        waits.note(PLACE, [hold])
    assert len(logged) == 2
