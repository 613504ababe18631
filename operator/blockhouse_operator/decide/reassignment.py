"""A KafkaReassignment and what was seen of its plan -> what may be done next, and its status (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from blockhouse.config.units import seconds
from blockhouse.fleet.frozen import FrozenPlan, Verdict
from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.model import Role
from blockhouse.throttle.rates import Why
from blockhouse.throttle.report import Row, stalled_text, whole_eta
from blockhouse.throttle.wording import megabytes
from blockhouse_operator.api.conditions import Condition, ConditionType, Reason, condition
from blockhouse_operator.api.reassignment import (
    BrokerThrottle,
    KafkaReassignmentSpec,
    ProgressStatus,
)

SHOWN_THROTTLES = 20


class Phase(StrEnum):
    """How far a reassignment is, in one word: `status.phase`."""

    PLANNING = "Planning"
    AWAITING_APPROVAL = "AwaitingApproval"
    QUEUED = "Queued"
    EXECUTING = "Executing"
    PAUSED = "Paused"
    COMPLETED = "Completed"
    STALLED = "Stalled"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a plan stands: verdicts of its partitions; `ahead` names the reassignment that goes first, if any."""

    verdicts: Mapping[TopicPartition, Verdict]
    approved: bool
    ahead: str = ""
    overdue: bool = False
    superseded: bool = False
    """The spec asks for another plan by now, which is computed as soon as nothing of this one moves."""
    cleaning: bool = False
    """Everything is moved, and throttles are still being removed."""
    left_on: tuple[int, ...] = ()
    """Brokers of `spec.leaving` that hold replicas still, though every partition of the plan is done."""
    absent: tuple[int, ...] = ()
    """Brokers that are not alive and that partitions which move have to reach."""
    strangers: tuple[int, ...] = ()
    """Brokers of `spec.leaving` that the cluster does not know."""

    @property
    def counts(self) -> Counter[Verdict]:
        return Counter(self.verdicts.values())

    @property
    def moving(self) -> bool:
        return self.counts[Verdict.MOVING] > 0

    @property
    def done(self) -> bool:
        return all(verdict in (Verdict.DONE, Verdict.GONE) for verdict in self.verdicts.values())

    @property
    def invalid(self) -> bool:
        """A partition is at neither end of its move, and nothing is moving that could bring it to one."""
        return self.counts[Verdict.NEITHER] > 0 and not self.moving


def may_start(spec: KafkaReassignmentSpec, standing: Standing) -> bool:
    """Whether more partitions may be started now."""
    return standing.approved and not (
        spec.paused or standing.ahead or standing.overdue or standing.superseded or standing.counts[Verdict.NEITHER]
    )


def phase_of(spec: KafkaReassignmentSpec, standing: Standing) -> Phase:
    """The phase of a reassignment that has a plan; total."""
    if standing.done and not standing.left_on:
        return Phase.EXECUTING if standing.cleaning else Phase.COMPLETED
    if standing.moving and not spec.paused:
        return Phase.EXECUTING
    if not standing.approved:
        return Phase.AWAITING_APPROVAL
    if spec.paused:
        return Phase.PAUSED
    if standing.ahead:
        return Phase.QUEUED
    return Phase.STALLED if _obstacle(standing) else Phase.EXECUTING


def progress_of(plan: FrozenPlan, standing: Standing, rows: tuple[Row, ...], now: datetime) -> ProgressStatus:
    """Counts and bytes. A partition that moves counts with what has arrived of it."""
    counts = standing.counts
    waiting = counts[Verdict.WAITING] + counts[Verdict.DEAD] + counts[Verdict.FOREIGN] + counts[Verdict.NEITHER]
    pending = sum(
        move.bytes
        for move in plan.moves
        if standing.verdicts[move.key] not in (Verdict.DONE, Verdict.GONE, Verdict.MOVING, Verdict.ELECTING)
    )
    moving = sum(move.bytes for move in plan.moves if standing.verdicts[move.key] is Verdict.MOVING)
    arriving = [row.remaining for row in rows if row.role is Role.FOLLOWER and row.remaining is not None]
    left = pending + (min(sum(arriving), moving) if arriving else moving)
    gone = sum(move.bytes for move in plan.moves if standing.verdicts[move.key] is Verdict.GONE)
    eta = whole_eta(rows)
    return ProgressStatus(
        done=counts[Verdict.DONE] + counts[Verdict.ELECTING],
        moving=counts[Verdict.MOVING],
        waiting=waiting,
        skipped=counts[Verdict.GONE],
        moved_bytes=round(max(plan.bytes - left - gone, 0)),
        remaining_bytes=round(left),
        eta="" if eta is None else "never" if eta == float("inf") else _at(now, eta),
    )


def throttles_of(rows: tuple[Row, ...]) -> tuple[BrokerThrottle, ...]:
    """Throttles as the status shows them: of many brokers, the slowest."""
    slowest = sorted(sorted(rows, key=lambda row: row.rate)[:SHOWN_THROTTLES], key=lambda row: (row.broker, row.role))
    return tuple(
        BrokerThrottle(
            broker=row.broker,
            role="source" if row.role is Role.LEADER else "destination",
            rate=megabytes(row.in_force if row.in_force is not None else row.rate),
            floor=megabytes(row.floor),
            why=row.why,
        )
        for row in slowest
    )


def conditions_of(
    spec: KafkaReassignmentSpec, plan: FrozenPlan, standing: Standing, rows: tuple[Row, ...], refused: str = ""
) -> tuple[Condition, ...]:
    """Every condition of a reassignment with a plan. `refused` are Kafka's words for what it would not do."""
    found = tuple(_conditions(spec, plan, standing, rows))
    if not refused:
        return found
    stalled = condition(ConditionType.STALLED, True, Reason.REASSIGNMENT_REFUSED, refused[:2000])
    return (*(one for one in found if one.type != ConditionType.STALLED.value), stalled)


def _conditions(
    spec: KafkaReassignmentSpec, plan: FrozenPlan, standing: Standing, rows: tuple[Row, ...]
) -> Iterator[Condition]:
    phase = phase_of(spec, standing)
    if not plan.moves:
        yield condition(ConditionType.PLAN_READY, True, Reason.NOTHING_TO_DO, _unheard_of(standing))
    else:
        text = "; ".join(filter(None, (f"{len(plan.moves)} partitions, {plan.hash}", _unheard_of(standing))))
        yield condition(ConditionType.PLAN_READY, True, Reason.PLAN_FROZEN, text)
        yield _approval(spec, plan, standing)
        yield _execution(spec, standing, phase)
        yield from _throttle_conditions(rows)
    completed = phase is Phase.COMPLETED
    message = ""
    if standing.counts[Verdict.GONE]:
        message = f"{standing.counts[Verdict.GONE]} partitions are gone and were left out"
    if standing.left_on:
        message = f"replicas came to brokers {', '.join(map(str, standing.left_on))} meanwhile; a new plan is computed"
    yield condition(ConditionType.COMPLETED, completed, Reason.ALL_MOVED if completed else _why_not(phase), message)
    obstacle = _obstacle(standing)
    if obstacle is not None and not completed and standing.approved:
        yield condition(ConditionType.STALLED, True, obstacle[0], obstacle[1])


def _unheard_of(standing: Standing) -> str:
    """Empty while every broker that is to leave is known: a mistyped id must not look like work that is done."""
    if not standing.strangers:
        return ""
    ids = ", ".join(map(str, standing.strangers[:20]))
    return f"spec.leaving: {ids}: no such brokers are alive, and no replica is on them"


def _approval(spec: KafkaReassignmentSpec, plan: FrozenPlan, standing: Standing) -> Condition:
    if standing.approved:
        return condition(ConditionType.APPROVED, True, Reason.APPROVED)
    if spec.approved_plan:
        text = f"spec.approvedPlan is {spec.approved_plan}, the plan is {plan.hash}: review it, then approve that one"
        return condition(ConditionType.APPROVED, False, Reason.OTHER_PLAN_APPROVED, text)
    return condition(
        ConditionType.APPROVED, False, Reason.AWAITING_APPROVAL, f"set spec.approvedPlan to {plan.hash} to carry it out"
    )


def _execution(spec: KafkaReassignmentSpec, standing: Standing, phase: Phase) -> Condition:
    if phase is Phase.COMPLETED:
        return condition(ConditionType.EXECUTING, False, Reason.ALL_MOVED)
    if standing.moving:
        held = " (nothing more is started)" if not may_start(spec, standing) else ""
        text = f"{standing.counts[Verdict.MOVING]} partitions move{held}"
        if standing.absent:
            dead = f"broker {', '.join(map(str, standing.absent[:20]))} is not alive"
            return condition(ConditionType.EXECUTING, True, Reason.BROKER_NOT_ALIVE, f"{text}; {dead}, its copies wait")
        return condition(ConditionType.EXECUTING, True, Reason.PAUSED if spec.paused else Reason.MOVING, text)
    if not standing.approved:
        return condition(ConditionType.EXECUTING, False, Reason.AWAITING_APPROVAL)
    if spec.paused:
        return condition(ConditionType.EXECUTING, False, Reason.PAUSED)
    if standing.ahead:
        return condition(ConditionType.EXECUTING, False, Reason.QUEUED, f"{standing.ahead} goes first")
    obstacle = _obstacle(standing)
    if obstacle is not None:
        return condition(ConditionType.EXECUTING, False, obstacle[0], obstacle[1])
    return condition(ConditionType.EXECUTING, True, Reason.MOVING)


def _why_not(phase: Phase) -> Reason:
    return {
        Phase.AWAITING_APPROVAL: Reason.AWAITING_APPROVAL,
        Phase.PAUSED: Reason.PAUSED,
        Phase.QUEUED: Reason.QUEUED,
    }.get(phase, Reason.MOVING)


def _obstacle(standing: Standing) -> tuple[Reason, str] | None:
    """What keeps the rest of the plan from being moved; None while something can be."""
    counts = standing.counts
    if standing.overdue:
        return Reason.DEADLINE_EXCEEDED, "spec.execution.deadline has passed; raise it to continue"
    if counts[Verdict.MOVING] or counts[Verdict.WAITING] or counts[Verdict.ELECTING]:
        return None
    if counts[Verdict.DEAD]:
        text = f"{counts[Verdict.DEAD]} partitions wait for brokers that are not alive; start them, or change the spec"
        return Reason.BROKER_NOT_ALIVE, text
    if counts[Verdict.FOREIGN]:
        return (
            Reason.FOREIGN_REASSIGNMENT,
            f"{counts[Verdict.FOREIGN]} partitions of the plan are moved by something else",
        )
    return None


def _throttle_conditions(rows: tuple[Row, ...]) -> Iterator[Condition]:
    if not rows:
        return
    stalled = [row for row in rows if row.stalled]
    if stalled:
        text = "; ".join(map(stalled_text, stalled[:5]))
        advice = "move fewer partitions at a time, allow more of the capacity, or choose another target"
        yield condition(ConditionType.THROTTLE_STALLED, True, Reason.THROTTLE_TOO_LOW, f"{text}; {advice}")
    else:
        yield condition(ConditionType.THROTTLE_STALLED, False, Reason.RATES_FOLLOW_LOAD)
    unknown = sorted({row.broker for row in rows if row.why == Why.CAPACITY_UNKNOWN.value})
    if unknown:
        text = f"brokers {', '.join(map(str, unknown[:20]))} get the minimum; set spec.throttle.capacity"
        yield condition(ConditionType.CAPACITY_UNKNOWN, True, Reason.CAPACITY_NOT_GIVEN, text)
    else:
        yield condition(ConditionType.CAPACITY_UNKNOWN, False, Reason.CAPACITY_GIVEN)


def _at(now: datetime, eta: float) -> str:
    """To the minute: a status that changes every second would be written every second."""
    return (now + timedelta(seconds=eta + 59)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:00Z")


def overdue(spec: KafkaReassignmentSpec, approved_at: str, now: datetime) -> bool:
    """Whether the deadline has passed since the plan was approved."""
    if spec.execution.deadline is None or not approved_at:
        return False
    return now - datetime.fromisoformat(approved_at) > timedelta(seconds=seconds(spec.execution.deadline))
