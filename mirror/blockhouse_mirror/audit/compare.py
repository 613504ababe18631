"""One partition: is every record of the source on the target, once, in order and unchanged? Pure, vectorised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]
Digests = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Records:
    """Records in the order of their log: source offsets and digests of what producers wrote, each of shape (n,)."""

    offsets: Offsets
    digests: Digests


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """What was found; `missing`, `doubled`, `changed` and `strange` have source offsets, ascending.

    `compared` is how many records were judged. `reordered` counts records that stand before one of a lower offset.
    `strange` are on the target and not in the source, which still reaches back there.
    """

    topic: str
    partition: int
    compared: int
    missing: Offsets
    doubled: Offsets
    changed: Offsets
    strange: Offsets
    reordered: int

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


def compare(topic: str, partition: int, source: Records, target: Records, begin: int, end: int) -> PartitionAudit:
    """Judge the source offsets [begin, end): what is in `source` there, against what `target` names as its origin."""
    within = (target.offsets >= begin) & (target.offsets < end)
    offsets, digests = target.offsets[within], target.digests[within]
    unique, first, counts = np.unique(offsets, return_index=True, return_counts=True)
    judged = (source.offsets >= begin) & (source.offsets < end)
    expected, expected_digests = source.offsets[judged], source.digests[judged]
    missing = np.setdiff1d(expected, unique)
    strange = np.setdiff1d(unique, expected)
    common, left, right = np.intersect1d(expected, unique, assume_unique=True, return_indices=True)
    changed = common[expected_digests[left] != digests[first[right]]]
    # The first copies alone: what is doubled is counted as that.
    order = offsets[np.sort(first)]
    reordered = int(np.count_nonzero(np.diff(order) < 0))
    return PartitionAudit(
        topic, partition, int(expected.size), missing, unique[counts > 1], changed, strange, reordered
    )
