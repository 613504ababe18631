"""Which brokers stay, go, are gone or are new: the map, the cluster and the desired list compared.

It judges nothing but membership, and warns about what an owner would want to know before data moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from blockhouse.placement.model import Broker, InvalidInput, PartitionMap


@dataclass(frozen=True, slots=True)
class Membership:
    """Broker ids by their part in the plan, each ascending.

    `usable` may receive replicas (kept and new), `new` of them hold none yet; `replaced` hold some and are not
    desired any more; `missing` hold some and are not in the cluster, whether desired or not.
    """

    usable: tuple[int, ...]
    new: tuple[int, ...]
    replaced: tuple[int, ...]
    missing: tuple[int, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def leaving(self) -> frozenset[int]:
        """Everyone whose replicas must go somewhere else."""
        return frozenset(self.replaced) | frozenset(self.missing)


def compare_membership(current: PartitionMap, cluster: Mapping[int, Broker], desired: Iterable[int]) -> Membership:
    """Sort the brokers of the map, of the cluster and of the desired list.

    Raises InvalidInput when the map is empty, no broker is desired, or one is listed twice.
    """
    listed = list(desired)
    _check(current, listed)
    mapped, known, given = current.brokers(), set(cluster), set(listed)
    usable, missing = sorted(given & known), sorted(mapped - known)
    replaced, new = sorted((mapped & known) - given), sorted((given & known) - mapped)
    warnings = [
        f"broker {id} is desired, and holds replicas, but is not in the cluster: it has died or its id is wrong; "
        "start it, or leave it out of the list so that it is replaced"
        if id in mapped
        else f"broker {id} is desired but unknown to the cluster; start it, or correct the list"
        for id in sorted(given - known)
    ]
    warnings += [
        f"broker {id} has no rack: its replicas may share a failure domain with others; set broker.rack"
        for id in usable
        if not cluster[id].rack
    ]
    notes = [f"broker {id} is not in the cluster any more: its replicas are replaced" for id in missing]
    notes += [f"broker {id} is replaced: it holds replicas and is not in the list" for id in replaced]
    notes += [f"broker {id} is new: it holds no replica of these topics" for id in new]
    return Membership(tuple(usable), tuple(new), tuple(replaced), tuple(missing), tuple(warnings), tuple(notes))


def _check(current: PartitionMap, listed: list[int]) -> None:
    problems = [
        f"broker {id} is in the broker list twice; list each broker once"
        for id in sorted({id for id in listed if listed.count(id) > 1})
    ]
    if not current:
        problems.append("the partition map is empty: there is nothing to plan; check the map, or the topic patterns")
    if not listed:
        problems.append("the broker list is empty; name the brokers that shall hold the replicas")
    if problems:
        raise InvalidInput(problems)
