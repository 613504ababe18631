"""A table's way to its declared columns, step by step and from every place where an operator may have been killed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.decide.seen import Gap, TableAt
from blockhouse_operator.decide.tables import (
    ROLLOUT,
    Alter,
    Create,
    PauseTable,
    Release,
    TableLook,
    plan_table,
)

SAME, LACKS, MISSING = Gap(True), Gap(True, ("extra",)), Gap(False, ("id", "extra"))


def look(*at: TableAt, **changes: object) -> TableLook:
    return replace(TableLook("db.t", at), **changes)  # type: ignore[arg-type]


def both(**changes: object) -> tuple[TableAt, TableAt]:
    first = replace(TableAt("r1", LACKS, revision=1), **changes)  # type: ignore[arg-type]
    return first, replace(first, replica="r2")


def test_a_table_as_declared_needs_nothing() -> None:
    plan = plan_table(look(*both(gap=SAME)))
    assert (plan.step, plan.reason, plan.revision) == (None, Reason.AS_SPECIFIED, 1)


def test_a_missing_table_is_created_at_each_replica_of_ours() -> None:
    first, second = both(gap=MISSING, revision=0)
    assert plan_table(look(first, second)).step == Create("r1", ("r2",))
    assert plan_table(look(replace(first, gap=SAME), second)).step == Create("r2")
    assert plan_table(look(first, replace(second, served=False))).step == Create("r1")


def test_a_replica_is_created_only_when_the_others_have_their_columns() -> None:
    first, second = both()
    assert plan_table(look(first, replace(second, gap=MISSING))).step == PauseTable("r1")


def test_hold_obey_alter_spread_release_reload() -> None:
    first, second = both()
    assert plan_table(look(first, second)).step == PauseTable("r1")
    held = both(rollout=ROLLOUT)
    assert plan_table(look(held[0], second)).step is None, "one replica has not seen the pause"
    assert plan_table(look(held[0], replace(held[1], busy=True))).step is None, "a block is in flight"
    assert plan_table(look(*held)).step == Alter("r1")
    altered = replace(held[0], gap=SAME)
    assert plan_table(look(altered, held[1])).step is None, "one replica has not got the columns"
    assert plan_table(look(altered, replace(held[1], gap=SAME))).step == Release("r1")
    waiting = plan_table(look(replace(first, gap=SAME, revision=2), replace(second, gap=SAME)))
    assert (waiting.step, waiting.reason) == (None, Reason.SCHEMA_CHANGING)
    assert plan_table(look(*both(gap=SAME, revision=2))).reason is Reason.AS_SPECIFIED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unowned": ("a/t/0",)}, "a/t/0"),
        ({"unheard": ("dc-b",)}, "dc-b"),
        ({"busy_shards": 1}, "1 other shard is"),
        ({"paused": True}, "paused"),
        ({"abandoned": True}, "timed out"),
    ],
)
def test_nothing_is_held_while_something_is_missing(changes: dict[str, object], message: str) -> None:
    plan = plan_table(look(*both(), **changes))
    assert plan.step is None
    assert message in plan.message


def test_nothing_is_held_while_a_replica_is_silent_unready_or_held_by_another() -> None:
    first, second = both()
    silent = TableAt("r2", None, silence="it does not answer")
    for other in (silent, replace(second, ready=False), replace(second, rollout="by hand")):
        assert plan_table(look(first, other)).step is None


def test_an_unowned_stream_that_appears_while_held_stops_the_alter() -> None:
    assert plan_table(look(*both(rollout=ROLLOUT), unowned=("a/t/0",))).step is None


def test_after_the_timeout_the_table_continues_at_its_old_revision() -> None:
    held = both(rollout=ROLLOUT, held_since_ms=1000)
    plan = plan_table(look(held[0], replace(held[1], busy=True), now_ms=902_000))
    assert (plan.step, plan.reason, plan.stalled) == (Release("r1", abandoned=True), Reason.STEP_TIMED_OUT, True)


def test_a_late_replica_does_not_keep_an_altered_table_held_indefinitely() -> None:
    held = both(rollout=ROLLOUT, held_since_ms=1000)
    plan = plan_table(look(replace(held[0], gap=SAME), held[1], now_ms=902_000))
    assert plan.step == Release("r1")


def test_a_refused_change_touches_nothing_and_releases_what_was_held() -> None:
    first, second = both(gap=Gap(True, refused=("column old is on the server and not in the DDL",)))
    plan = plan_table(look(first, second))
    assert (plan.step, plan.reason, plan.stalled) == (None, Reason.SCHEMA_MISMATCH, True)
    assert "column old" in plan.message
    assert "(r1, r2)" in plan.message
    assert plan_table(look(replace(first, rollout=ROLLOUT), second)).step == Release("r1")
    unread = plan_table(look(*both(gap=None, revision=3), refused="its DDL cannot be read"))
    assert (unread.reason, unread.revision) == (Reason.SCHEMA_MISMATCH, 3), "the old revision serves, and is reported"


def test_an_abandoned_change_is_released() -> None:
    """The spec no longer asks for the column."""
    assert plan_table(look(*both(gap=SAME, rollout=ROLLOUT))).step == Release("r1")


def test_a_table_blocked_at_a_replica_is_reported() -> None:
    first, second = both(gap=SAME)
    plan = plan_table(look(first, replace(second, why="column text was dropped")))
    assert plan.reason is Reason.TABLE_BLOCKED
    assert "r2" in plan.message


def test_a_table_that_an_aggregator_could_not_compare_yet_is_not_reported_as_blocked() -> None:
    """Its server is unavailable: that is no matter for a person to decide."""
    first, second = both(gap=SAME)
    plan = plan_table(look(first, replace(second, silence="not compared with the server yet")))
    assert (plan.step, plan.reason) == (None, Reason.STATUS_UNKNOWN)
    assert plan.message == "replica r2: not compared with the server yet"


def test_a_report_of_an_earlier_hold_does_not_count() -> None:
    held = both(rollout=ROLLOUT, held_since_ms=2000)
    assert plan_table(look(held[0], replace(held[1], served=False, held_since_ms=1000))).step is None
    assert plan_table(look(held[0], replace(held[1], served=False))).step == Alter("r1")


def test_an_operator_creates_only_where_it_serves() -> None:
    first, second = both(gap=MISSING)
    plan = plan_table(look(replace(first, gap=SAME), replace(second, served=False)))
    assert (plan.step, plan.reason) == (None, Reason.SCHEMA_CHANGING)


def test_what_concerns_the_shard_is_asked_of_a_replica_that_answers() -> None:
    held = both(gap=SAME, rollout=ROLLOUT)
    silent = replace(held[0], gap=None, silence="it does not answer")
    assert plan_table(look(silent, held[1])).step == Release("r2")


def test_a_table_that_is_not_known_is_recorded() -> None:
    """Created by hand, or by an operator that died: producers could not send to it."""
    first, second = both(gap=SAME)
    assert plan_table(look(first, replace(second, revision=0))).step == Create("r2")
    assert plan_table(look(*both(gap=SAME, revision=0, why="no such type"))).reason is Reason.TABLE_BLOCKED


def test_an_abort_releases_a_paused_table_at_its_old_revision_and_begins_nothing() -> None:
    plan = plan_table(look(*both(rollout=ROLLOUT), aborted=True))
    assert (plan.step, plan.reason) == (Release("r1", abandoned=True), Reason.ABORTED)
    plan = plan_table(look(*both(), aborted=True))
    assert (plan.step, plan.reason) == (None, Reason.ABORTED)


def test_an_abort_after_the_alter_waits_for_no_replica() -> None:
    held = both(rollout=ROLLOUT)
    assert plan_table(look(replace(held[0], gap=SAME), held[1], aborted=True)).step == Release("r1")


def test_no_table_is_paused_while_a_replica_restarts() -> None:
    plan = plan_table(look(*both(), restarting="r2"))
    assert plan.step is None
    assert "r2, which restarts" in plan.message


def test_a_change_is_over_only_when_every_aggregator_has_restarted() -> None:
    loaded = both(gap=SAME, revision=2)
    due = replace(loaded[1], restart_due=True)
    assert plan_table(look(loaded[0], due)).reason is Reason.SCHEMA_CHANGING
    assert plan_table(look(loaded[0], due, paused=True)).reason is Reason.PAUSED
    assert plan_table(look(loaded[0], due, aborted=True)).reason is Reason.ABORTED
    assert plan_table(look(loaded[0], due, reload=True)).reason is Reason.AS_SPECIFIED
    gone = replace(loaded[1], gap=None, silence="it does not answer", ready=False)
    assert plan_table(look(loaded[0], gone, restarting="r2", rolling=True)).reason is Reason.SCHEMA_CHANGING
    assert plan_table(look(loaded[0], gone, restarting="r2")).reason is Reason.STATUS_UNKNOWN
