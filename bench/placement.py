"""How long plans take as the fleet grows: seconds of CPU by number of partitions, on 100 brokers.

    python bench/placement.py [--brokers 100] [--partitions 2500,5000,10000,20000]

Figures only; nothing passes or fails. A column whose time doubles with the partitions grows linearly.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from random import Random

from blockhouse.placement.model import Broker, PartitionMap, TopicPartition
from blockhouse.placement.plan import Plan
from blockhouse.placement.rebalance import RebalanceOptions, plan_rebalance
from blockhouse.placement.rebuild import RebuildOptions, plan_rebuild

GIB = 1 << 30
RACKS = "abcde"
REPLICATION = 3


class Fleet:
    """A fleet of one size, the same every time: partitions of 1 to 60 GiB on brokers that grew unevenly."""

    def __init__(self, partitions: int, brokers: int) -> None:
        chance = Random(partitions)
        ids = range(brokers)
        racks = [[id for id in ids if id % len(RACKS) == n] for n in range(len(RACKS))]
        self.current = PartitionMap(
            {
                TopicPartition(f"topic-{n // 50:04}", n % 50): [
                    chance.choice(racks[rack]) for rack in chance.sample(range(len(RACKS)), REPLICATION)
                ]
                for n in range(partitions)
            }
        )
        self.sizes = {key: chance.uniform(1, 60) * GIB for key in self.current}
        used = dict.fromkeys(ids, 0.0)
        for key, replicas in self.current.items():
            for id in replicas:
                used[id] += self.sizes[key]
        disk = 1.5 * max(used.values())
        self.cluster = {id: Broker(id, RACKS[id % len(RACKS)], disk - used[id]) for id in ids}
        self.new = {id: Broker(id, RACKS[id % len(RACKS)], disk) for id in range(brokers, brokers + brokers // 10)}
        self.all = self.cluster | self.new

    def rebuild(self, **options: object) -> Plan:
        """One broker in ten replaced, unless forced."""
        leaving = set() if options.get("force") else set(range(len(self.new)))
        staying = [id for id in self.all if id not in leaving]
        return plan_rebuild(self.current, self.all, staying, RebuildOptions(**options), self.sizes)  # type: ignore[arg-type]

    def rebalance(self, **options: object) -> Plan:
        brokers = self.all if options.get("operation") == "scale" else self.cluster
        settings = RebalanceOptions(**options)  # type: ignore[arg-type]
        return plan_rebalance(self.current, brokers, brokers, self.sizes, settings)


PLANS: dict[str, Callable[[Fleet], Plan]] = {
    "replace, count": lambda fleet: fleet.rebuild(),
    "force, count": lambda fleet: fleet.rebuild(force=True),
    "force, storage": lambda fleet: fleet.rebuild(force=True, placement="storage"),
    "force, packed": lambda fleet: fleet.rebuild(force=True, placement="storage", optimize="storage"),
    "force, leaders": lambda fleet: fleet.rebuild(force=True, placement="storage", optimize_leadership=True),
    "rebalance, t 0.1": lambda fleet: fleet.rebalance(tolerance=0.1, threshold=0.05),
    "rebalance, all t": lambda fleet: fleet.rebalance(threshold=0.05),
    "scale, all t": lambda fleet: fleet.rebalance(operation="scale"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--partitions", default="2500,5000,10000,20000")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.partitions.split(",")]
    fleets = [Fleet(count, arguments.brokers) for count in counts]
    print(f"{'seconds of CPU (replicas moved)':32}" + "".join(f"{count:>18}" for count in counts))
    for name, plan_for in PLANS.items():
        cells = []
        for fleet in fleets:
            start = time.process_time()
            plan = plan_for(fleet)
            seconds = time.process_time() - start
            moved = sum(len(set(after) - set(plan.before[key])) for key, after in plan.after.items())
            cells.append(f"{seconds:.2f} ({moved})")
        print(f"{name:32}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
