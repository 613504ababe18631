"""Streams that begin again, at the moments that chance alone hardly ever strikes.

An owner sleeps between two of the steps in which it begins a stream, while its topic is created again and another owner
begins it; or a stream that was let begin again loses its marker to a backup of before, and its newest offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import StreamMarker
from tests.simulation.clock import Process
from tests.simulation.kafka import Cluster
from tests.simulation.world import World
from tests.simulation.zookeeper import Ensemble

if TYPE_CHECKING:
    from tests.simulation.faults import Misfortunes
    from tests.simulation.replica import Node

CLAIM, MARK = "claim", "mark"
"""What an owner writes as it begins a stream: that it is about to do so again; after its first commit, that it did."""
LONGEST = 90.0
"""Seconds for which the world does not heal: a stop, a person's patience, and two owners one after the other."""
LOOK = 0.25


class Restarts:
    """`begin` chooses one of the ways. `create_again` has the topic of a cluster made again, its offsets forgotten;
    `go_back` has its offsets go back to some of after the marker was first written."""

    def __init__(
        self, world: World, nodes: list[Node], clusters: Mapping[str, Cluster], ensemble: Ensemble,
        misfortunes: Misfortunes, create_again: Callable[[Cluster], None], go_back: Callable[[Cluster], bool],
    ) -> None:  # fmt: skip
        self._world = world
        self._nodes = {node.name: node for node in nodes}
        self._clusters = clusters
        self._ensemble = ensemble
        self._misfortunes = misfortunes
        self._create_again = create_again
        self._go_back = go_back
        self._random = Random(f"{world.setting.seed} restarts")

    def begin(self) -> None:
        seldom = [self._late_mark_of_the_next] * 2
        ways = [self._late_first_mark, self._late_mark, self._late_claim, self._backup, *seldom]
        way = self._random.choice(ways)
        self._misfortunes.not_over_before(LONGEST)
        self._world.narrate("world", f"restarts: {way.__name__.strip('_')}")
        self._world.count("event restart")
        way()

    # --- an owner that sleeps -------------------------------------------------------------------------------

    def _late_first_mark(self) -> None:
        """It has committed for the first time and not marked the stream; the topic is created again meanwhile."""
        self._sleep_before(MARK, recreated=True)

    def _late_mark(self) -> None:
        """The same of one that a person let begin again."""
        self._recreate_soon(lambda _: self._sleep_before(MARK, recreated=True))

    def _late_mark_of_the_next(self) -> None:
        """The same of the owner that continues what another one began: that one died before it marked the stream."""
        self._recreate_soon(
            lambda _: self._die_before(MARK, then=lambda stream: self._sleep_before(MARK, recreated=True, of=stream))
        )

    def _late_claim(self) -> None:
        """It has decided to begin again, by a marker that will be another one's."""
        self._recreate_soon(lambda _: self._sleep_before(CLAIM, recreated=False))

    def _recreate_soon(self, then: Callable[[Cluster], None]) -> None:
        def recreate() -> None:
            if self._world.healing:
                return
            cluster = self._random.choice(list(self._clusters.values()))
            if all(self._ensemble.marker(log.stream) is not None for log in cluster.logs) and cluster.up:
                self._create_again(cluster)
                then(cluster)
            else:
                self._world.later(0.5, recreate)

        self._world.later(self._random.uniform(2, 6), recreate)

    def _sleep_before(self, step: str, *, recreated: bool, of: StreamId | None = None) -> None:
        def fall_asleep(node: Node, stream: StreamId) -> None:
            self._world.count(f"asleep before a {step}")
            asleep, seen = self._misfortunes.put_to_sleep(node), self._ensemble.marker(stream)
            if recreated:
                cluster = self._clusters[stream.cluster]
                self._world.later(self._random.uniform(0, 2), self._create_again, cluster)
            self._while_asleep(asleep, stream, seen, self._world.loop.time() + LONGEST)

        self._once_before(step, fall_asleep, of)

    def _die_before(self, step: str, then: Callable[[StreamId], None]) -> None:
        def die(node: Node, stream: StreamId) -> None:
            self._misfortunes.kill_driver(node)
            then(stream)

        self._once_before(step, die)

    def _once_before(self, step: str, happen: Callable[[Node, StreamId], None], of: StreamId | None = None) -> None:
        """To the first owner, of any stream or of that one, that comes to that step."""

        def about_to_write(what: str, replica: str, stream: StreamId) -> None:
            node = self._nodes[replica]
            if what == step and of in (None, stream) and node.driver.running and not self._world.healing:
                self._ensemble.on_write = lambda *_: None
                happen(node, stream)

        self._ensemble.on_write = about_to_write

    def _while_asleep(self, asleep: list[Process], stream: StreamId, seen: StreamMarker | None, until: float) -> None:
        """Until another owner has marked the stream, and stored something."""
        now, marker = self._world.loop.time(), self._ensemble.marker(stream)
        marked = marker is not None and marker != seen and not marker.restarting and marker.seq > 1
        if not marked and now < until:
            self._world.later(LOOK, self._while_asleep, asleep, stream, seen, until)
            return
        self._misfortunes.wake(asleep)
        self._world.later(self._random.uniform(2, 4), self._judge_by_next_owner, stream)

    def _judge_by_next_owner(self, stream: StreamId) -> None:
        """What the sleeper has written shows at the next takeover."""
        cluster = self._clusters[stream.cluster]
        cluster.logs[stream.partition].kinds.extend([0] * 3)
        owner = cluster.owner(stream.partition)
        if owner in self._nodes:
            self._misfortunes.kill_driver(self._nodes[owner])
        self._over()

    def _over(self) -> None:
        """The world may heal once the next owners are there."""

        def end() -> None:
            self._misfortunes.asleep_until = 0.0

        self._world.later(15, end)

    # --- a backup -------------------------------------------------------------------------------------------

    def _backup(self) -> None:
        """ZooKeeper is restored from before a stream began again, and its newest offsets are lost, too."""
        self._recreate_soon(self._restore_from_before)

    def _restore_from_before(self, cluster: Cluster) -> None:
        old, until = dict(self._ensemble.znodes.nodes), self._world.loop.time() + LONGEST

        def restore() -> None:
            began = [self._ensemble.marker(log.stream) for log in cluster.logs]
            if all(m is not None and m.topic_id == cluster.topic_id for m in began) and self._go_back(cluster):
                self._ensemble.expire_all()
                self._ensemble.znodes.nodes = old
                self._world.narrate("zookeeper", "a backup of before the streams began again is restored")
                for log in (log for each in self._clusters.values() for log in each.logs):
                    self._world.causes.setdefault(str(log.stream), set()).add("MarkerMissing")
                self._over()
            elif self._world.loop.time() < until:
                self._world.later(1.0, restore)

        restore()
