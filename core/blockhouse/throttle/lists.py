"""A topic's list of throttled replicas: ours is added to what others have there, and exactly ours is taken out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from blockhouse.throttle.model import ALL_REPLICAS, ClearList, ListPlace, Observed, Ownership, SetList

REMOVED = "-"
"""Marks an entry of ours whose removal was sent and not yet seen."""


@dataclass(frozen=True, slots=True)
class ListChange:
    """What happens to one list. `additions` come before anything moves, `removals` after everything else."""

    place: ListPlace
    additions: tuple[SetList, ...] = ()
    removals: tuple[SetList | ClearList, ...] = ()
    owned_before: frozenset[str] = frozenset()
    owned_after: frozenset[str] = frozenset()


def list_changes(
    desired: Mapping[ListPlace, frozenset[str]], observed: Observed, owned: Ownership, *, adopt: bool = False
) -> list[ListChange]:
    """The changes of every list that is desired or has entries of ours. Lists of topics that are gone need none.

    With `adopt` every entry that is there counts as ours.
    """
    places = sorted(place for place in desired.keys() | owned.lists.keys() if place[0] in observed.topics)
    return [
        _change(
            place,
            desired.get(place, frozenset()),
            observed.lists.get(place, frozenset()),
            observed.lists.get(place, frozenset()) if adopt else owned.lists.get(place, frozenset()),
        )
        for place in places
    ]


def _change(place: ListPlace, desired: frozenset[str], live: frozenset[str], remembered: frozenset[str]) -> ListChange:
    owned = frozenset(entry.removeprefix(REMOVED) for entry in remembered)
    if ALL_REPLICAS in live - owned:  # another tool throttles the whole topic: every replica of ours is named already
        return ListChange(place)
    foreign = live - owned
    ours = desired - foreign
    complete, final = live | desired, foreign | desired
    additions = (SetList(*place, complete),) if complete != live else ()
    leaving = {entry for entry in owned - desired if entry in live or entry in remembered}
    removals: tuple[SetList | ClearList, ...] = ()
    if leaving:
        removals = (SetList(*place, final),) if final else (ClearList(*place),)
    marked = frozenset(REMOVED + entry for entry in leaving)
    return ListChange(place, additions, removals, owned_before=remembered | ours, owned_after=ours | marked)
