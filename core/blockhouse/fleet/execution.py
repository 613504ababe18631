"""Carrying a plan out on a live cluster: what is left to do is read from the cluster, so it can always be resumed.

Nothing is remembered between runs and nothing runs behind the caller's back: stop it anywhere, call it again.
Kafka itself goes on with what was started; `cancel` takes that back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.model import Fleet, PartitionState
from blockhouse.placement.model import InvalidInput, PartitionMap, ReplicaSet, TopicPartition

POLL_SECONDS = 1.0

Pause = Callable[[float], None]
"""Wait that many seconds; may raise to end the execution (a deadline, an interrupt)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Partitions of the plan by what is left to do, each in map order.

    `waiting` is not started, `moving` copies data, `electing` has its data but not its preferred leader or full
    in-sync set, `done` is as planned.
    """

    waiting: tuple[TopicPartition, ...]
    moving: tuple[TopicPartition, ...]
    electing: tuple[TopicPartition, ...]
    done: tuple[TopicPartition, ...]

    @property
    def finished(self) -> bool:
        return not (self.waiting or self.moving or self.electing)


def survey(fleet: Fleet, plan: PartitionMap) -> Progress:
    """Compare the plan with the cluster. Raises InvalidInput for what can never be executed.

    That is: unknown topics and partitions, brokers that are not alive, and partitions being reassigned to
    something else than the plan says.
    """
    partitions, moving, alive = fleet.partitions(), fleet.reassigning(), fleet.brokers()
    problems = list(_problems(plan, partitions, moving, alive))
    if problems:
        raise InvalidInput(problems)
    return _progress(plan, partitions, moving)


def execute(fleet: Fleet, plan: PartitionMap, pause: Pause, in_flight: int = 50) -> Iterator[Progress]:
    """Carry the plan out, at most `in_flight` partitions moving at a time; yields the progress after every look.

    Ends when the cluster is as planned: every set in its order, in sync, led by its preferred leader. Raises
    InvalidInput as `survey`, Permanent when the cluster refuses a partition. A cluster that does not answer is asked
    again.
    """
    progress = survey(fleet, plan)
    while True:
        yield progress
        if progress.finished:
            return
        try:
            _advance(fleet, plan, progress, in_flight)
            pause(POLL_SECONDS)
            progress = _progress(plan, fleet.partitions(), fleet.reassigning())
        except Retryable as unanswered:
            pause(unanswered.after)


def cancel(fleet: Fleet, plan: PartitionMap, pause: Pause) -> tuple[TopicPartition, ...]:
    """Take back what is moving of the plan and wait until nothing is; returns the partitions concerned.

    What has arrived already stays. A partition that something else reassigns is left alone.
    """
    ours = tuple(key for key, target in fleet.reassigning().items() if plan.get(key) == target)
    if ours:
        _raise_refused(fleet.reassign(dict.fromkeys(ours)))
    while set(ours) & set(fleet.reassigning()):
        pause(POLL_SECONDS)
    return ours


def _problems(
    plan: PartitionMap,
    partitions: Mapping[TopicPartition, PartitionState],
    moving: Mapping[TopicPartition, ReplicaSet],
    alive: Collection[int],
) -> Iterator[str]:
    for key, replicas in plan.items():
        if key not in partitions:
            yield f"{key} does not exist in the cluster; make the plan again"
        for id in replicas:
            if id not in alive:
                yield f"{key}: broker {id} of the plan is not alive; start it, or make the plan again"
        if key in moving and moving[key] != replicas:
            yield (
                f"{key} is being reassigned to {list(moving[key])}, the plan says {list(replicas)}; "
                "wait for it, or cancel that one first"
            )


def _progress(
    plan: PartitionMap,
    partitions: Mapping[TopicPartition, PartitionState],
    moving: Mapping[TopicPartition, ReplicaSet],
) -> Progress:
    sorted_by: dict[str, list[TopicPartition]] = {"waiting": [], "moving": [], "electing": [], "done": []}
    for key, replicas in plan.items():
        state = partitions.get(key)
        if key in moving:
            kind = "moving"
        elif state is None or state.replicas != replicas:
            kind = "waiting"
        elif state.leader != replicas[0] or state.in_sync != set(replicas):
            kind = "electing"
        else:
            kind = "done"
        sorted_by[kind].append(key)
    return Progress(**{kind: tuple(keys) for kind, keys in sorted_by.items()})


def _advance(fleet: Fleet, plan: PartitionMap, progress: Progress, in_flight: int) -> None:
    free = max(in_flight - len(progress.moving), 0)
    start = {key: plan[key] for key in islice(progress.waiting, free)}
    if start:
        _raise_refused(fleet.reassign(start))
    if progress.electing:
        fleet.elect_preferred_leaders(progress.electing)


def _raise_refused(refused: Mapping[TopicPartition, str]) -> None:
    if refused:
        lines = "\n".join(f"{key}: {reason}" for key, reason in sorted(refused.items()))
        raise Permanent(
            f"the cluster refused to reassign:\n{lines}\nmake the plan again, it may be out of date",
            reason="ReassignmentRefused",
        )
