"""Substitution affinity: one new broker takes exactly the slots of one that leaves.

So a repair copies the layout an owner has balanced by hand, instead of spreading the slots over all brokers. There is
no fallback: either every leaving broker gets its own substitute, or there is no plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from blockhouse.placement.membership import Membership
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap


def substitutes(current: PartitionMap, cluster: Mapping[int, Broker], members: Membership) -> dict[int, int]:
    """Leaving broker id -> id of the new broker that takes its slots; each new broker is used once.

    Brokers that are gone choose first: their rack has to be inferred, so fewer substitutes suit them. Raises
    InvalidInput when a broker cannot be substituted.
    """
    missing = sorted(members.missing)
    replaced = sorted(set(members.replaced) - set(missing))
    leaving = len(missing) + len(replaced)
    if len(members.new) < leaving:
        new = len(members.new)
        raise InvalidInput([f"substitution affinity: {leaving} brokers leave, {new} are new; give one new for each"])
    free = list(members.new)
    chosen: dict[int, int] = {}
    problems: list[str] = []
    for id in (*missing, *replaced):
        racks = possible_racks(current, cluster, id) if id in missing else [cluster[id].rack]
        match = next((new for rack in racks for new in free if cluster[new].rack == rack), None)
        if match is None:
            problems.append(_no_match(id, racks, inferred=id in missing))
            continue
        free.remove(match)
        chosen[id] = match
    if problems:
        raise InvalidInput(problems)
    return chosen


def _no_match(id: int, racks: list[str], *, inferred: bool) -> str:
    start = f"substitution affinity: broker {id}"
    if not inferred:
        return f"{start} is in rack {racks[0]!r}, and no new broker of that rack is left; give one more"
    if not racks:
        return f"{start} is gone and the map does not show its rack (its partners are in every rack seen without it)"
    return f"{start} is gone; it was in one of the racks {', '.join(racks)}, and no new broker of those is left"


def possible_racks(current: PartitionMap, cluster: Mapping[int, Broker], gone: int) -> list[str]:
    """Racks, sorted, that a broker which is gone can have been in: seen in sets without it, never beside it."""
    beside: set[str] = set()
    elsewhere: set[str] = set()
    for replicas in current.values():
        racks = {cluster[id].rack for id in replicas if id in cluster} - {""}
        (beside if gone in replicas else elsewhere).update(racks)
    return sorted(elsewhere - beside)
