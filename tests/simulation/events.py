"""What changes underneath: topics, logs, committed offsets and ZooKeeper become others than they were.

One kind in a world, and in a part of the worlds only: it changes what the rest of a run can show. What a person has to
decide then is decided in `operator`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata
from tests.simulation.deletions import Deletions
from tests.simulation.kafka import Cluster
from tests.simulation.logs import HOLE, StreamLog
from tests.simulation.moments import Moments
from tests.simulation.replaced_tables import ReplacedTables
from tests.simulation.restarts import Restarts
from tests.simulation.world import World
from tests.simulation.zookeeper import Ensemble

if TYPE_CHECKING:
    from tests.simulation.faults import Misfortunes
    from tests.simulation.oracle import Oracle
    from tests.simulation.replica import Node

EVENTS = (
    "topic", "topic", "cut", "cut", "election", "offsets", "markers", "schema", "backup", "clock",
    "drop", "swap", "swap", "swap", "swap", "delete", "delete",
)  # fmt: skip
"""A topic is deleted and made again; a log is cut and written again; leaders change; committed offsets go back with
their metadata; ZooKeeper loses the markers, or the schema history, or is restored from an old backup;
machines are suspended, their clocks with them; a table is dropped and created again, or takes another one's
place; rows are deleted."""
REPLAYS = ("ReplayDiffers", "ReplayRangeExpired", "ReportRejected", "LaggingMessagesExpired")
"""What is reported of blocks in flight and lagging tables when other messages have their offsets."""
SHARE = 0.35
"""Of all worlds, those with an event."""


RARE = {"restart": 0.06, "stall": 0.01, "part": 0.05}
"""Of all worlds, those with one of these in place of any other: what chance hardly ever arranges. Streams that begin
again (`restarts.py`); event loops that stand still as they check a lock of which the session is over then; parts that
fail while the server that has them is up again, and whose blocks are rebuilt wrongly."""


def event_of(seed: int) -> str:
    at = Random(f"rare {seed}").random()
    for event, share in RARE.items():
        if at < share:
            return event
        at -= share
    random = Random(f"events {seed}")
    return random.choice(EVENTS) if random.random() < SHARE else ""


class Events:
    """`begin` lets the world's event happen."""

    def __init__(
        self, world: World, nodes: list[Node], clusters: Mapping[str, Cluster], ensemble: Ensemble, oracle: Oracle,
        misfortunes: Misfortunes,
    ) -> None:  # fmt: skip
        self._world = world
        self._nodes = nodes
        self._clusters = clusters
        self._ensemble = ensemble
        self._oracle = oracle
        self._misfortunes = misfortunes
        self._random = Random(f"{world.setting.seed} events")
        self._deletions = Deletions(world, nodes, misfortunes.shard, clusters, ensemble, misfortunes)
        self._replaced = ReplacedTables(world, nodes, misfortunes.shard, misfortunes)
        self._moments = Moments(world, nodes, misfortunes)
        self._restarts = Restarts(
            world, nodes, clusters, ensemble, misfortunes,
            create_again=lambda cluster: self._create_again(cluster, forgets=True, catches_up=True),
            go_back=lambda cluster: self._go_back(cluster, restores=True, only=_shows_something_stored),
        )  # fmt: skip
        self._deserted = self._random.random() < 0.5
        """Whether no producer writes to a log any more that is cut."""

    def begin(self) -> None:
        kinds: dict[str, Callable[[], bool]] = {
            "topic": self.topic, "cut": self.cut, "election": self.election, "offsets": self.offsets,
            "markers": self.markers, "schema": self.schema, "backup": self.backup, "clock": self._moments.clock,
            "stall": self._moments.stall, "part": self._moments.part,
            "drop": self._replaced.drop, "swap": self._replaced.swap, "delete": self._deletions.delete,
        }  # fmt: skip
        event, seconds = self._world.setting.event, self._world.setting.seconds
        if event == "restart":
            self._restarts.begin()
        elif event:
            often = {"election": (2, 6), "drop": (1, 2), "swap": (1, 3), "delete": (1, 3)}
            times = self._random.randint(*often.get(event, (1, 1)))
            least, most = (0.02, 0.4) if event in ("backup", "clock", "stall", "part") else (0.25, 0.85)
            for _ in range(times):
                self._world.later(self._random.uniform(least, most) * seconds, self._try, event, kinds[event])

    def _try(self, event: str, happen: Callable[[], bool]) -> None:
        """Once it can; not while the world heals."""
        if self._world.healing:
            return
        if happen():
            self._world.count(f"event {event}")
        else:
            self._world.later(0.5, self._try, event, happen)

    def _causes(self, log: StreamLog, *reasons: str) -> None:
        self._world.causes.setdefault(str(log.stream), set()).update(reasons)

    def _any_cluster(self) -> Cluster:
        return self._random.choice(list(self._clusters.values()))

    # --- Kafka ----------------------------------------------------------------------------------------------

    def topic(self) -> bool:
        """Deleted and made again at once, or after a while. Brokers forget what groups committed of it, unless a commit
        comes too late for that."""
        cluster = self._any_cluster()
        if not cluster.up or not any(log.end for log in cluster.logs):
            return False
        self._create_again(cluster, forgets=self._random.random() < 0.7, catches_up=self._random.random() < 0.85)
        if self._random.random() < 0.2:
            cluster.deleted = True

            def made() -> None:
                cluster.deleted = False

            self._world.later(self._random.uniform(0.3, 6), made)
        return True

    def _create_again(self, cluster: Cluster, *, forgets: bool, catches_up: bool) -> None:
        cluster.topic += 1
        self._world.narrate(f"kafka {cluster.name}", f"the topic is deleted and made again: {cluster.topic_id}")
        for log, entry in zip(cluster.logs, cluster.offsets, strict=True):
            burst = log.end + self._random.randint(1, 12) if catches_up else 0
            log.create_again(cluster.topic)
            self._causes(log, "TopicRecreated", "UnknownTopic", "BeyondLogEnd", "LogTruncated", *REPLAYS)
            if self._ensemble.marker(log.stream) is None:
                self._oracle.accepted(log.stream, 0)  # nothing of it was inserted: it may begin again by itself
            entry.earlier.clear()
            log.kinds.extend(self._random.randrange(self._world.setting.tables) for _ in range(burst))
            if forgets:
                entry.offset, entry.metadata, entry.forced = None, "", False

    def election(self) -> bool:
        """Another leader that has everything. A transaction's marker may follow, without a message."""
        log = self._random.choice(self._any_cluster().logs)
        log.content.elect()
        self._world.narrate(f"kafka {log.stream.cluster}", f"{log.stream}: leader epoch {log.content.leader_epoch}")
        if self._random.random() < 0.6:
            log.kinds.append(HOLE)
        return True

    def cut(self) -> bool:
        """A leader without the last messages is elected, and other messages take their place; or no producer writes to
        it any more, and the worker dies that has sent a block of what is gone."""
        log = self._random.choice(self._any_cluster().logs)
        last = self._oracle.last(log.stream)
        entry = self._clusters[log.stream.cluster].offsets[log.stream.partition]
        if last is None or last.leader_epoch < 0 or last.position < 2 or entry.forced:
            return False
        at = min(log.end, self._random.randint(max(0, last.position - 8), last.position + 2))
        if self._deserted:
            workers = [(n, w) for n in self._nodes for w in n.workers.values() if w.spec.stream == log.stream]
            sent = [(n, w, key) for n, w in workers for key in w.inserting]
            if not sent:
                return False
            node, worker, key = self._random.choice(sent)
            at = self._random.randint(key.begin, key.end)
            node.kill_worker(worker)
            log.silent = True
        log.cut(at)
        self._causes(log, "LogTruncated", "BeyondLogEnd", *REPLAYS)
        self._world.narrate(f"kafka {log.stream.cluster}", f"{log.stream} is cut to {at}, P={last.position}")
        rewritten = log.content

        def write() -> None:
            """Sooner or later it is longer than it was: a reader at its very end can learn nothing."""
            while log.content is rewritten and log.end < last.position + 3:
                log.kinds.append(self._random.choice([HOLE, *range(self._world.setting.tables)]))

        if not self._deserted:
            self._world.later(self._random.choice([0.0, self._random.uniform(0, 10)]), write)
        return True

    def offsets(self) -> bool:
        """The brokers' disks are restored: of a whole cluster, offsets and metadata are old ones that belong together.
        A person restores the newest, or accepts."""
        cluster = self._any_cluster()
        if not cluster.up or any(entry.forced for entry in cluster.offsets):
            return False
        return self._go_back(cluster, restores=self._random.random() < 0.4)

    def _go_back(self, cluster: Cluster, *, restores: bool, only: Callable[[str], bool] = lambda _: True) -> bool:
        """False when there is nothing to go back to: of all former commits `only` those count."""
        former = {p: self._misfortunes.gone_back(cluster, p) for p in range(len(cluster.logs))}
        older = {p: found for p, pairs in former.items() if (found := [pair for pair in pairs if only(pair[1])])}
        if not older:
            return False
        for node in self._nodes:
            self._misfortunes.kill_driver(node)
        cluster.members.clear()
        for partition, pairs in older.items():
            entry, log = cluster.offsets[partition], cluster.logs[partition]
            restore = entry.force(*self._random.choice(pairs), restores=restores)
            self._causes(log, "OffsetsWentBack")
            self._world.narrate(f"kafka {cluster.name}", f"{log.stream} goes back to {entry.offset}")
            if restores:
                self._world.later(self._random.uniform(8, 20), restore)
        return True

    # --- ZooKeeper ------------------------------------------------------------------------------------------

    def _restart_all(self, most: float) -> None:
        """As a person does who has set an ensemble up again."""
        for node in self._nodes:
            self._world.later(self._random.uniform(0, most), self._misfortunes.kill_driver, node)

    def _all_logs(self) -> list[StreamLog]:
        return [log for cluster in self._clusters.values() for log in cluster.logs]

    def _forced(self) -> bool:
        """Whether a tool has set an offset: then a person knows that it is not the newest, and does that first."""
        return any(entry.forced for cluster in self._clusters.values() for entry in cluster.offsets)

    def markers(self) -> bool:
        """All that is known of streams is lost, perhaps with the newest offsets of a cluster: then these are restored.
        A person restores the markers too, or accepts that there are none."""
        if self._forced() or not self._ensemble.znodes.nodes:
            return False
        if self._random.random() < 0.5:
            self._go_back(self._any_cluster(), restores=True, only=_shows_something_stored)
        lost = self._ensemble.forget_streams()
        self._world.narrate("zookeeper", "markers and decisions are lost")
        for log in self._all_logs():
            self._causes(log, "MarkerMissing")
        self._restart_all(8)
        if self._random.random() < 0.3:

            def restore() -> None:
                self._world.narrate("zookeeper", "what was lost is restored")
                self._ensemble.znodes.nodes = {**lost, **self._ensemble.znodes.nodes}

            self._world.later(self._random.uniform(10, 20), restore)
        return True

    def schema(self) -> bool:
        """The schema history is set up again while no aggregator runs; a person restores it, or accepts that."""
        if self._forced() or not self._ensemble.znodes.nodes:
            return False
        self._restart_all(0)
        self._ensemble.expire_all()
        self._ensemble.history += 1
        self._ensemble.tables.clear()
        self._world.narrate("zookeeper", "the schema history is another one")
        for log in self._all_logs():
            self._causes(log, "SchemaHistoryReplaced", "SchemaHistoryIncomplete")
        return True

    def backup(self) -> bool:
        """An old state of ZooKeeper is restored: markers are behind, or not there yet."""
        if self._forced():
            return False
        old = dict(self._ensemble.znodes.nodes)

        def restore() -> None:
            if self._world.healing or self._forced():
                return
            self._restart_all(6)
            self._ensemble.expire_all()
            self._ensemble.znodes.nodes = old
            self._world.narrate("zookeeper", "an old backup is restored")
            for log in self._all_logs():
                self._causes(log, "MarkerMissing")

        self._world.later(self._random.uniform(1, 8), restore)
        return True


def _shows_something_stored(text: str) -> bool:
    """Of what seems to be the first commit, with nothing inserted yet, no marker is expected: an owner may have died
    before it wrote one. That the offset went back to it as well is one loss too many for anyone to see."""
    metadata = codec.decode(text)
    assert isinstance(metadata, Metadata)
    return metadata.window.sealed > sum(e.in_flight.messages for e in metadata.tables if e.in_flight is not None)
