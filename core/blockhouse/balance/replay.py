"""Recorded cases of load-based assignment, answered: as Brooklin did, or as a mirror of ours would.

Pure: a case is a JSON object, an answer is one. The format is that of `blockhouse mirror replay` in docs/balance.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, ValidationError, field_validator

from blockhouse.balance import brooklin
from blockhouse.balance.count import TaskLimits, needed
from blockhouse.balance.model import Assignment, NotEnoughRoom, quality
from blockhouse.balance.packing import giants
from blockhouse.balance.sticky import renew
from blockhouse.errors import Permanent
from blockhouse.placement.model import TopicPartition

KB = brooklin.KB
TOO_FEW_TASKS = "Not enough tasks to fit partitions"


class _Case(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    id: str
    partitions: list[str]
    throughput_kb: dict[str, NonNegativeFloat] = {}
    tasks: dict[str, list[str]] = {}
    default_partition_kb: NonNegativeFloat = 5.0
    task_capacity_mb: float = Field(default=4.0, gt=0)
    task_utilization_pct: float = Field(default=90.0, gt=0, le=100)
    max_partitions_per_task: int = Field(default=0, ge=0)

    @field_validator("partitions")
    @classmethod
    def _once(cls, partitions: list[str]) -> list[str]:
        if len(set(partitions)) < len(partitions):
            raise ValueError("a partition is named twice")
        return partitions


def parse(document: Mapping[str, Any]) -> tuple[str, brooklin.Case]:
    """A case's id and values. Raises Permanent naming everything that is wrong with it."""
    try:
        case = _Case.model_validate(document)
        partitions = [_partition(name) for name in case.partitions]
        tasks = {task: [_partition(name) for name in names] for task, names in case.tasks.items()}
        Assignment(tasks)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors())
        raise Permanent(f"case {document.get('id', 'without id')}: {problems}", reason="InvalidCase") from None
    except ValueError as error:
        raise Permanent(f"case {document.get('id')}: {error}", reason="InvalidCase") from None
    existing = set(partitions).union(*tasks.values())
    own = {_name(key): key for key in existing}
    return case.id, brooklin.Case(
        partitions=partitions,
        partition_kb={own[name]: rate for name, rate in case.throughput_kb.items() if name in own},
        topic_kb={name: rate for name, rate in case.throughput_kb.items() if name not in own},
        tasks=tasks,
        default_kb=case.default_partition_kb,
        capacity_mb=case.task_capacity_mb,
        utilization_pct=case.task_utilization_pct,
        most_partitions=case.max_partitions_per_task,
    )


def as_brooklin(case: brooklin.Case) -> dict[str, Any]:
    """What the original answers. `exact` is false where equal rates or loads made its choice arbitrary."""
    answer: dict[str, Any] = {"estimated_tasks": brooklin.estimated_tasks(case)}
    if not case.tasks:
        return answer
    try:
        found = brooklin.assign(case)
    except NotEnoughRoom:
        return answer | {"error": TOO_FEW_TASKS}
    return answer | {
        "loads_without_unknown_kb_sorted": sorted(found.loads.values()),
        "unknown_partitions": _names(found.unknown),
        "exact": found.exact,
        "assignment_without_unknown": {task: _names(keys) for task, keys in found.tasks.items()},
        "partitions_per_task_unknown_sorted": sorted(found.unknown_by_task.values()),
    }


def as_ours(case: brooklin.Case, tolerance: float) -> dict[str, Any]:
    """What a mirror of ours does with the tasks of the case; loads in KB/s, unknown partitions with the default."""
    weights = {key: case.rate(key) * KB for key in case.partitions}
    limits = TaskLimits(
        capacity=case.capacity_mb * KB * KB,
        utilization=case.utilization_pct / 100,
        most_partitions=case.most_partitions,
        most=max(len(weights), 1),
    )
    asked = needed(weights, limits)
    answer: dict[str, Any] = {"needed_tasks": asked.tasks}
    if not case.tasks:
        return answer
    before = Assignment(case.tasks)
    guessed = {key for key in case.partitions if case.known(key) is None}
    try:
        after = renew(before, list(case.tasks), weights, tolerance, case.most_partitions, guessed=guessed)
    except NotEnoughRoom as error:
        return answer | {"error": str(error)}
    even = quality(after, weights)
    return answer | {
        "loads_kb_sorted": sorted(load / KB for load in after.loads(weights).values()),
        "ratio": round(even.ratio, 4),
        "giants": _names(giants(weights, len(after), tolerance)),
        "moved": _names(after.moved_from(before)),
        "assignment": {task: _names(keys) for task, keys in after.items()},
    }


def _partition(name: str) -> TopicPartition:
    """`clicks-7`; the topic is what is before the last `-`. Raises ValueError."""
    topic, dash, number = name.rpartition("-")
    if not (topic and dash and number.isdecimal()):
        raise ValueError(f"{name!r} is not TOPIC-NUMBER")
    return TopicPartition(topic, int(number))


def _name(key: TopicPartition) -> str:
    return f"{key.topic}-{key.partition}"


def _names(keys: Iterable[TopicPartition] | Sequence[TopicPartition]) -> list[str]:
    return sorted(map(_name, keys))
