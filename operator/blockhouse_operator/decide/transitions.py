"""What conditions state: whether all is as it should be, and which changes of them are worth an Event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blockhouse_operator.api.conditions import NORMALLY_FALSE, Condition, ConditionType, Reason

OF_A_CHANGE = frozenset(
    {ConditionType.RECONCILING, ConditionType.SUSPENDED, ConditionType.PAUSED, ConditionType.EXECUTING}
)
"""True while a person has it so, or something is changed: no warning."""
BAD_WHEN_TRUE = NORMALLY_FALSE - OF_A_CHANGE
ALWAYS = frozenset({ConditionType.READY.value, ConditionType.PLAN_READY.value})
"""An Event also when they come to the good by themselves: a person waits for them."""
NEUTRAL = frozenset({ConditionType.RECONCILING.value, ConditionType.SUSPENDED.value})
ON_THE_WAY = frozenset(
    {
        "Progressing",
        "Suspended",
        "RollingOut",
        "Scaling",
        "Replaying",
        "Deleting",
        "PodsNotReady",
        "SchemaChanging",
        "Starting",
        "Waiting",
        "TasksUneven",
    }
)
"""Reasons of an ordinary start or change: no warning."""


@dataclass(frozen=True, slots=True)
class Change:
    reason: str
    message: str
    warning: bool


def transitions(before: Sequence[Condition], after: Sequence[Condition]) -> Iterator[Change]:
    """Total. A condition that is gone has no Event: the one that replaced it has. Nothing is ready at first. Of what
    comes to the good in the course of a start or a change, Ready is enough (and the plan of a reassignment): there are
    thousands of shards."""
    known = {condition.type: condition for condition in before}
    for condition in after:
        old = known.get(condition.type)
        if old is not None and (old.status, old.reason) == (condition.status, condition.reason):
            continue
        if old is None and condition.status == "Unknown":
            continue
        if _as_expected(old, condition):
            continue
        first = old is None and condition.type == ConditionType.READY.value
        yield Change(condition.reason, _words(condition), _bad(condition) and not first)


def _as_expected(old: Condition | None, new: Condition) -> bool:
    if new.type in ALWAYS or new.type in NEUTRAL or _bad(new) or new.status == "Unknown":
        return False
    return old is None or old.status == "Unknown" or old.reason in ON_THE_WAY


def _words(condition: Condition) -> str:
    text = f"{condition.type} is {condition.status}"
    return f"{text}: {condition.message}" if condition.message else text


def _bad(condition: Condition) -> bool:
    if condition.type in NEUTRAL or condition.reason in ON_THE_WAY:
        return False
    if condition.type in NORMALLY_FALSE:
        return condition.status == "True" and condition.type in BAD_WHEN_TRUE
    return condition.status == "False"


def calm(conditions: Sequence[Condition]) -> bool:
    """Whether nothing is on its way: what they are about is ready or suspended, and not being changed."""
    by_type = {found.type: found for found in conditions}
    ready = by_type.get(ConditionType.READY.value)
    settled = ready is not None and (ready.status == "True" or ready.reason == Reason.SUSPENDED.value)
    return settled and ConditionType.RECONCILING.value not in by_type
