"""Which changes of conditions become Events."""

from __future__ import annotations

from blockhouse_operator.api.conditions import ConditionType, Reason, condition
from blockhouse_operator.decide.transitions import transitions


def test_events_are_of_changes_and_only_of_changes() -> None:
    before = (condition(ConditionType.READY, True, Reason.ALL_CONSUMING),)
    down = (condition(ConditionType.READY, False, Reason.NOT_ENOUGH_REPLICAS, "one of two"),)
    assert list(transitions(before, before)) == []
    (change,) = transitions(before, down)
    assert (change.warning, change.reason) == (True, "NotEnoughReplicas")
    (change,) = transitions(down, before)
    assert not change.warning
    (change,) = transitions((), (condition(ConditionType.STALLED, True, Reason.INVALID_SPEC),))
    assert change.warning
    (change,) = transitions((), down)
    assert not change.warning, "nothing is ready at first"


def test_of_a_start_and_of_a_change_ready_alone_is_reported() -> None:
    """A shard has four more conditions, and there are thousands of shards."""
    kind, well = (
        ConditionType.TOPICS_PROVISIONED,
        (condition(ConditionType.TOPICS_PROVISIONED, True, Reason.AS_SPECIFIED),),
    )
    unknown = (condition(kind, None, Reason.KAFKA_UNREACHABLE),)
    creating = (condition(kind, False, Reason.PROGRESSING),)
    failed = (condition(kind, False, Reason.TOPIC_FAILED),)
    assert [list(transitions(before, well)) for before in ((), unknown, creating)] == [[], [], []]
    assert [change.warning for change in transitions(failed, well)] == [False], "what warned has an end"
    assert [change.warning for change in transitions(well, failed)] == [True]
    ready = (condition(ConditionType.READY, True, Reason.ALL_CONSUMING),)
    assert [change.reason for change in transitions((), ready)] == ["AllConsuming"]


def test_a_plan_that_is_shown_is_an_event_although_it_came_to_the_good_by_itself() -> None:
    shown = condition(ConditionType.PLAN_READY, True, Reason.PLAN_FROZEN, "5 moves")
    (change,) = transitions((), (shown,))
    assert (change.reason, change.warning) == ("PlanFrozen", False)


def test_of_conditions_that_are_false_when_all_is_well_only_the_trouble_warns() -> None:
    for kind, warns in (
        (ConditionType.THROTTLE_STALLED, True),
        (ConditionType.CAPACITY_UNKNOWN, True),
        (ConditionType.DEAD_LETTERS, True),
        (ConditionType.EXECUTING, False),
        (ConditionType.PAUSED, False),
    ):
        begun = (condition(kind, True, Reason.AS_SPECIFIED),)
        ended = (condition(kind, False, Reason.AS_SPECIFIED),)
        assert any(change.warning for change in transitions(ended, begun)) == warns, kind
        assert not any(change.warning for change in transitions(begun, ended)), kind
