"""Largest first, each on the lightest task: the assignment at a start, and of partitions that are new.

Pure. Its heaviest task is at most 4/3 of the best possible; with hundreds of partitions a task, within a percent of
the mean. Equal weights go by name and equal tasks by their order, so that every process decides the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence

from blockhouse.balance.model import Assignment, NotEnoughRoom, Weights
from blockhouse.placement.model import TopicPartition


def place(
    kept: Assignment,
    new: Iterable[TopicPartition],
    weights: Weights,
    most: int = 0,
    guessed: Collection[TopicPartition] = (),
) -> Assignment:
    """`kept`, and every one of `new` on the lightest task that has room; `most` partitions a task, 0: any number.

    Those whose weight is `guessed` come last: a guess must not displace what is known. Raises NotEnoughRoom;
    ValueError without a task.
    """
    ordered = sorted(new, key=lambda key: (key in guessed, -weights[key], key))
    if not kept:
        raise ValueError("there is no task to place partitions on")
    if most and sum(map(len, kept.values())) + len(ordered) > most * len(kept):
        raise NotEnoughRoom(sum(map(len, kept.values())) + len(ordered), len(kept), most)
    tasks = {task: list(keys) for task, keys in kept.items()}
    loads = kept.loads(weights)
    heap = [(loads[task], n, task) for n, task in enumerate(tasks) if not most or len(tasks[task]) < most]
    heapq.heapify(heap)
    for key in ordered:
        load, n, task = heap[0]
        tasks[task].append(key)
        if most and len(tasks[task]) >= most:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (load + weights[key], n, task))
    return Assignment(tasks)


def repack(tasks: Sequence[str], weights: Weights, most: int = 0) -> Assignment:
    """Everything from the beginning: at a start, or on request. Nearly every partition moves."""
    return place(Assignment(dict.fromkeys(tasks, ())), weights, weights, most)


def giants(weights: Weights, tasks: int, tolerance: float) -> list[TopicPartition]:
    """Partitions that no assignment can hide, heaviest first: each is above the limit of the others' tasks.

    Each takes a task of its own as long as one is left for the rest.
    """
    found: list[TopicPartition] = []
    rest, left = sum(weights.values()), tasks
    for key in heapq.nlargest(max(tasks - 1, 0), weights, key=lambda key: (weights[key], key)):
        if weights[key] <= (1 + tolerance) * rest / left:
            break
        found.append(key)
        rest, left = rest - weights[key], left - 1
    return found


def limit(weights: Weights, tasks: int, tolerance: float, found: Iterable[TopicPartition]) -> float:
    """Bytes/s a task without a giant may have: the mean of the rest over the other tasks, and the tolerance."""
    alone = list(found)
    rest = sum(weights.values()) - sum(weights[key] for key in alone)
    return (1 + tolerance) * max(rest, 0.0) / (tasks - len(alone))


def by_count(current: Mapping[str, Sequence[TopicPartition]], partitions: Iterable[TopicPartition]) -> Assignment:
    """Without any rate: as many partitions on every task as on the others, or one more; moves as few as that takes.

    What a task may keep is what it had first. Raises ValueError without a task.
    """
    if not current:
        raise ValueError("there is no task to place partitions on")
    required = set(partitions)
    kept = {task: [key for key in keys if key in required] for task, keys in current.items()}
    least, more = divmod(len(required), len(kept))
    # The fullest tasks are those that may have one more: they would have to give it otherwise.
    fullest = sorted(kept, key=lambda task: -len(kept[task]))[:more]
    room = {task: least + (task in fullest) for task in kept}
    placed = {task: keys[: room[task]] for task, keys in kept.items()}
    left = sorted(required - {key for keys in placed.values() for key in keys})
    for task, keys in placed.items():
        missing = room[task] - len(keys)
        keys.extend(left[:missing])
        del left[:missing]
    return Assignment(placed)
