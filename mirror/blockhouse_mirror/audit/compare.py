"""One partition: is every record of the source on the target, once, in order and unchanged? Pure, vectorised."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]
Digests = NDArray[np.uint64]
Keys = NDArray[np.int64]
Flags = NDArray[np.bool_]

BROKERS_TIME = -1
"""Stands for the timestamp of a record whose broker keeps its own (`LogAppendTime`)."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records in the order of their log, each array of shape (n,): source offsets, digests of what producers wrote
    without its timestamp, and that in milliseconds, BROKERS_TIME where the broker replaced it.

    `keys` are hashes of keys, equal only for equal keys of one process; `fleeting` has those records that compaction
    takes although nothing supersedes them: null values, and records without a key.
    """

    offsets: Offsets
    digests: Digests
    moments: Offsets
    keys: Keys
    fleeting: Flags


class Compacted(NamedTuple):
    """Which ends may have lost records to compaction."""

    source: bool = False
    target: bool = False


NEITHER = Compacted()


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """What was found; `missing`, `doubled`, `changed`, `strange` and `refused` have source offsets, ascending.

    `compared` is how many records were judged. `reordered` counts records that stand before one of a lower offset.
    `strange` are on the target and not in the source, which still reaches back there; `refused` are not on the target
    and have a dead letter there, which is no fault. Of topics that are `compacted`
    what compaction may have taken at either end is neither missing nor strange; `untimed` records were compared without
    their timestamps, which the target's broker replaced.
    """

    topic: str
    partition: int
    compared: int
    missing: Offsets
    doubled: Offsets
    changed: Offsets
    strange: Offsets
    reordered: int
    compacted: Compacted = NEITHER
    untimed: int = 0
    refused: Offsets = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def faults(self) -> Mapping[str, Offsets]:
        """Offsets at fault, by kind."""
        return {"missing": self.missing, "doubled": self.doubled, "changed": self.changed, "strange": self.strange}

    @property
    def exact(self) -> bool:
        return not (self.reordered or any(offsets.size for offsets in self.faults.values()))

    @property
    def lossless(self) -> bool:
        """Nothing is missing or changed."""
        return not (self.missing.size or self.changed.size)

    @property
    def judged(self) -> str:
        """By what, in words: every record, or what compaction leaves; how many had no timestamp, or a dead letter."""
        words = "survivors" if any(self.compacted) else "every record"
        words += f", {self.untimed} without timestamps" if self.untimed else ""
        return words + (f", {self.refused.size} refused" if self.refused.size else "")


def compare(
    topic: str,
    partition: int,
    source: Records,
    target: Records,
    begin: int,
    end: int,
    *,
    compacted: Compacted = NEITHER,
    letters: Collection[int] = (),
) -> PartitionAudit:
    """Judge the source offsets [begin, end): what is in `source` there, against what `target` names as its origin.

    `letters` are source offsets that have a dead letter. Where an end is compacted, both may hold records from `end`
    on: by these compaction may have taken earlier ones.
    """
    within = (target.offsets >= begin) & (target.offsets < end)
    offsets = target.offsets[within]
    unique, first, counts = np.unique(offsets, return_index=True, return_counts=True)
    judged = (source.offsets >= begin) & (source.offsets < end)
    expected = source.offsets[judged]
    missing = np.setdiff1d(expected, unique)
    refused = np.intersect1d(missing, np.fromiter(letters, np.int64, len(letters)))
    missing = np.setdiff1d(missing, refused)
    strange = np.setdiff1d(unique, expected)
    if compacted.target:  # which was sent nothing yet of what the source has behind `end`
        missing = np.setdiff1d(missing, _replaceable(source, target, end))
    if compacted.source:
        strange = np.setdiff1d(strange, _replaceable(source, target))
    common, left, right = np.intersect1d(expected, unique, assume_unique=True, return_indices=True)
    changed, untimed = _differing(source, np.flatnonzero(judged)[left], target, np.flatnonzero(within)[first[right]])
    # The first copies alone: what is doubled is counted as that.
    reordered = int(np.count_nonzero(np.diff(offsets[np.sort(first)]) < 0))
    found = missing, unique[counts > 1], common[changed], strange
    return PartitionAudit(topic, partition, int(expected.size), *found, reordered, compacted, untimed, refused)


def _differing(source: Records, left: Offsets, target: Records, right: Offsets) -> tuple[Flags, int]:
    """Which of these pairs of records, by their indices, are not equal; and how many pairs have no time to compare."""
    timed = target.moments[right] != BROKERS_TIME
    differs = source.digests[left] != target.digests[right]
    return differs | (timed & (source.moments[left] != target.moments[right])), int(np.count_nonzero(~timed))


def _replaceable(source: Records, target: Records, end: int | None = None) -> Offsets:
    """Offsets of records that compaction may take: not the last ones of their keys at either end, or fleeting; the
    source counts below `end` alone."""
    known = source.offsets < end if end is not None else np.ones(source.offsets.shape, np.bool_)
    offsets = np.concatenate([source.offsets[known], target.offsets])
    keys = np.concatenate([source.keys[known], target.keys])
    fleeting = np.concatenate([source.fleeting[known], target.fleeting])
    _, key_of = np.unique(keys, return_inverse=True)
    last = np.zeros(int(key_of.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last, key_of, offsets)
    return np.unique(offsets[(offsets < last[key_of]) | fleeting])
