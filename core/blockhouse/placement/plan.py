"""The outcome every planner returns: maps before and after, and all that must be known to trust the difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from blockhouse.placement.membership import Membership
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, Sizes


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan. It must not be executed while `errors` is not empty: those partitions keep their set in `after`.

    `free_before` and `free_after` are bytes by broker id, empty when the plan did not consider storage. `targets`
    and `tolerance` record what a rebalance unloaded, and how far from the mean it let brokers go.
    """

    before: PartitionMap
    after: PartitionMap
    cluster: Mapping[int, Broker]
    members: Membership
    errors: tuple[str, ...] = ()
    free_before: Mapping[int, float] | None = None
    free_after: Mapping[int, float] | None = None
    targets: tuple[int, ...] = ()
    tolerance: float | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.members.warnings


def known_free_space(cluster: Mapping[int, Broker], ids: Iterable[int]) -> dict[int, float]:
    """Free bytes of the brokers with these ids. Raises InvalidInput naming those that were not measured."""
    free = {id: cluster[id].free for id in sorted(ids)}
    unknown = [id for id, value in free.items() if value is None]
    if unknown:
        raise InvalidInput(
            f"broker {id}: its free space is unknown, and this plan places by storage; give storage_free"
            for id in unknown
        )
    return {id: float(value) for id, value in free.items() if value is not None}


def check_sizes(current: PartitionMap, sizes: Sizes) -> None:
    """Raises InvalidInput naming every partition without a size: a guess would fill some broker's disk."""
    missing = [key for key in current if key not in sizes]
    if missing:
        raise InvalidInput(f"{key}: its size is unknown, and this plan places by storage; add it" for key in missing)
