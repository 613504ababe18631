"""Machines, event loops and servers that fail at one moment: as a lock is got or checked, or a part is written.

Each event waits for its moment by taking the place of the world's `strike`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.faults import Misfortunes
    from tests.simulation.replica import Node

SUSPENDED = 25.0
"""Seconds at most: clocks may differ by 30 without a wrong decision (`evidence.CLOCK_SKEW`), and do by 4 anyway."""


class Moments:
    """Each method lets its event happen from now on."""

    def __init__(self, world: World, nodes: list[Node], misfortunes: Misfortunes) -> None:
        self._world = world
        self._nodes = nodes
        self._misfortunes = misfortunes
        self._random = Random(f"{world.setting.seed} moments")

    def clock(self) -> bool:
        """From now on machines are suspended now and then as they get a lock, and their clocks stand still: what they
        grant when they continue seems young. For no longer than clocks may differ; some time later they are set."""
        strike = self._world.strike

        def suspend(point: str, replica: int) -> None:
            node = self._nodes[replica]
            busy = point == "lock held" and node.driver.running and not self._misfortunes.asleep_until
            if not busy or self._world.healing or self._random.random() > 0.5:
                strike(point, replica)
                return
            self._world.count("suspended with its clock")
            self._misfortunes.oversleep(node, machine=True, most=SUSPENDED)
            self._world.later(SUSPENDED + self._random.uniform(0.5, 10), node.set_clock)

        self._world.strike = suspend
        return True

    def stall(self) -> bool:
        """From now on an event loop stands still now and then right as it checks a lock, until its session is over
        and another one has begun: what it does next rests on a lock that is none."""
        strike = self._world.strike

        def stand_still(point: str, replica: int) -> None:
            node = self._nodes[replica]
            if point != "lock checked" or self._world.healing or not node.driver.running or self._random.random() > 0.2:
                strike(point, replica)
                return
            self._world.count("stood still at a lock")
            self._misfortunes.stand_still(node)

        self._world.strike = stand_still
        return True

    def part(self) -> bool:
        """The next part of some server is not fetched, and that server is killed with the workers beside it; it is up
        again as the part fails. The owner asks for rows of a block that it cannot rebuild."""
        strike = self._world.strike

        def lose(point: str, replica: int) -> None:
            node = self._nodes[replica]
            if point != "part written" or self._world.healing or not node.driver.running:
                strike(point, replica)
                return
            self._world.strike = strike
            self._misfortunes.lose_part_beside_its_owner(node)

        self._world.strike = lose
        return True
