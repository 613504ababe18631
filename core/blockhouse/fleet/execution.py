"""Carrying a plan out on a live cluster: what is left to do is read from the cluster, so it can always be resumed.

Nothing is remembered between runs and nothing runs behind the caller's back: stop it anywhere, call it again.
Kafka itself continues what was started; `cancel` takes that back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.model import Fleet, Move, PartitionState
from blockhouse.placement.model import InvalidInput, PartitionMap, ReplicaSet, TopicPartition

POLL_SECONDS = 1.0

Pause = Callable[[float], None]
"""Wait that many seconds; may raise to end the execution (a deadline, an interrupt)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much may move at a time: partitions in all, and replicas that arrive at one broker (None: any number)."""

    in_flight: int = 50
    per_broker: int | None = None


class Guard(Protocol):
    """Something that accompanies an execution, such as a throttle."""

    def before_start(self, starting: Mapping[TopicPartition, ReplicaSet]) -> None:
        """These are about to move. Raises Retryable or Permanent when they must not."""

    def after_look(self) -> None:
        """The cluster was observed; called every second or so while the plan is carried out."""

    def finished(self) -> None:
        """The cluster is as planned."""

    def abandoned(self) -> None:
        """The plan is not carried on: remove what nothing needs any more. Raises nothing of the cluster's."""


class Unguarded:
    """Nothing accompanies it."""

    def before_start(self, starting: Mapping[TopicPartition, ReplicaSet]) -> None:
        """Let them move."""

    def after_look(self) -> None:
        """Nothing."""

    def finished(self) -> None:
        """Nothing."""

    def abandoned(self) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Partitions of the plan by what is left to do, each in map order.

    `waiting` is not started, `moving` copies data, `electing` has its data but not its preferred leader or full
    in-sync set, `done` is as planned, `gone` was deleted with its topic meanwhile.
    """

    waiting: tuple[TopicPartition, ...]
    moving: tuple[TopicPartition, ...]
    electing: tuple[TopicPartition, ...]
    done: tuple[TopicPartition, ...]
    gone: tuple[TopicPartition, ...] = ()

    @property
    def finished(self) -> bool:
        return not (self.waiting or self.moving or self.electing)


def survey(fleet: Fleet, plan: PartitionMap) -> Progress:
    """Compare the plan with the cluster. Raises InvalidInput for what can never be executed.

    That is: unknown topics and partitions, brokers that are not alive, and partitions being reassigned to
    something else than the plan.
    """
    partitions, moving, alive = fleet.partitions(), fleet.moves(), fleet.brokers()
    problems = list(_problems(plan, partitions, moving, alive))
    if problems:
        raise InvalidInput(problems)
    return progress_of(plan, partitions, moving)


def execute(
    fleet: Fleet,
    plan: PartitionMap,
    pause: Pause,
    pace: Pace | None = None,
    guard: Guard | None = None,
    delayed: Callable[[Retryable], None] = lambda _: None,
) -> Iterator[Progress]:
    """Carry the plan out, no faster than `pace`; yields the progress after every look.

    Ends when the cluster is as planned: every set in its order, in sync, led by its preferred leader. What is deleted
    meanwhile is left out. Raises InvalidInput as `survey`, Permanent when the cluster refuses a partition. A cluster
    that does not answer is asked again, after `delayed` was called with the error.
    """
    pace, guard = pace or Pace(), guard or Unguarded()
    progress, known = survey(fleet, plan), True
    while True:
        try:
            if not known:  # also after a failure: it may have failed because what is seen is no longer so
                progress, known = _look(fleet, plan), True
            yield progress
            known = False
            if progress.finished:
                guard.finished()
                return
            guard.after_look()
            advance(fleet, plan, progress, pace, guard)
            pause(POLL_SECONDS)
        except Retryable as unanswered:
            delayed(unanswered)
            pause(unanswered.after)
        except Permanent:
            guard.abandoned()
            raise


def _look(fleet: Fleet, plan: PartitionMap) -> Progress:
    progress = progress_of(plan, fleet.partitions(), fleet.moves())
    if progress.gone:
        fleet.require_visible({key.topic for key in progress.gone})
    return progress


def cancel(fleet: Fleet, plan: PartitionMap, pause: Pause) -> tuple[TopicPartition, ...]:
    """Take back what is moving of the plan and wait until nothing is; returns the partitions concerned.

    What has arrived already stays. A partition that something else reassigns is left alone.
    """
    ours = tuple(key for key, move in fleet.moves().items() if plan.get(key) == move.target)
    if ours:
        _raise_refused(fleet.reassign(dict.fromkeys(ours)))
    while set(ours) & set(fleet.moves()):
        pause(POLL_SECONDS)
    return ours


def _problems(
    plan: PartitionMap,
    partitions: Mapping[TopicPartition, PartitionState],
    moving: Mapping[TopicPartition, Move],
    alive: Collection[int],
) -> Iterator[str]:
    for key, replicas in plan.items():
        if key not in partitions:
            yield f"{key} does not exist in the cluster; make the plan again"
        for id in replicas:
            if id not in alive:
                yield f"{key}: broker {id} of the plan is not alive; start it, or make the plan again"
        if key in moving and moving[key].target != replicas:
            yield (
                f"{key} is being reassigned to {list(moving[key].target)}, the plan has {list(replicas)}; "
                "wait for it, or cancel that one first"
            )


def progress_of(
    plan: PartitionMap,
    partitions: Mapping[TopicPartition, PartitionState],
    moving: Mapping[TopicPartition, Move],
) -> Progress:
    """What is left to do of the plan, by what was seen."""
    sorted_by: dict[str, list[TopicPartition]] = {
        "waiting": [], "moving": [], "electing": [], "done": [], "gone": []
    }  # fmt: skip
    for key, replicas in plan.items():
        state = partitions.get(key)
        if key in moving:
            kind = "moving"
        elif state is None:
            kind = "gone"
        elif state.replicas != replicas:
            kind = "waiting"
        elif state.leader != replicas[0] or state.in_sync != set(replicas):
            kind = "electing"
        else:
            kind = "done"
        sorted_by[kind].append(key)
    return Progress(**{kind: tuple(keys) for kind, keys in sorted_by.items()})


def advance(fleet: Fleet, plan: PartitionMap, progress: Progress, pace: Pace, guard: Guard) -> None:
    """Start what may start, and let preferred leaders lead. Raises Permanent when the cluster refuses a partition."""
    start = startable(plan, progress.waiting, fleet.partitions(), fleet.moves(), pace) if progress.waiting else {}
    if start:
        guard.before_start(start)
        refused = fleet.reassign(start)
        if refused:
            there = fleet.partitions()  # a topic may have been deleted in this moment
            _raise_refused({key: reason for key, reason in refused.items() if key in there})
    if progress.electing:
        fleet.elect_preferred_leaders(progress.electing)


def startable(
    plan: Mapping[TopicPartition, ReplicaSet],
    waiting: Collection[TopicPartition],
    partitions: Mapping[TopicPartition, PartitionState],
    moving: Mapping[TopicPartition, Move],
    pace: Pace,
) -> dict[TopicPartition, ReplicaSet]:
    """Those of `waiting` that may start now, in map order. What others move counts for brokers, not for partitions."""
    free = pace.in_flight - sum(key in plan and move.target == plan[key] for key, move in moving.items())
    arriving = Counter(id for move in moving.values() for id in move.adding)
    start: dict[TopicPartition, ReplicaSet] = {}
    for key in waiting:
        if len(start) >= free:
            break
        replicas = partitions[key].replicas if key in partitions else ()
        new = [id for id in plan[key] if id not in replicas]
        if pace.per_broker is None or all(arriving[id] < pace.per_broker for id in new):
            arriving.update(new)
            start[key] = plan[key]
    return start


def _raise_refused(refused: Mapping[TopicPartition, str]) -> None:
    if refused:
        lines = "\n".join(f"{key}: {reason}" for key, reason in sorted(refused.items()))
        raise Permanent(
            f"the cluster refused to reassign:\n{lines}\nmake the plan again, it may be out of date",
            reason="ReassignmentRefused",
        )
