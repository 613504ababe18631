"""Misfortunes of one run: some at random times, some at the moments that hurt, all of them healed in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from tests.simulation.clickhouse import Row, Shard, Table
from tests.simulation.clock import Process
from tests.simulation.kafka import Cluster
from tests.simulation.replica import Node
from tests.simulation.world import World
from tests.simulation.zookeeper import IDS, Ensemble

IN_A_ROW = 8
"""Workers of a stream that die one after the other: more than the failed leases that raise an alarm."""

OFTENER = 4
"""Replays are few, and one that is sent into a part that fails shows what no other moment does."""


class Misfortunes:
    """Everything that can be done to a world. `begin` sets it going, `heal` ends it all."""

    def __init__(
        self, world: World, nodes: list[Node], shard: Shard, clusters: Mapping[str, Cluster], ensemble: Ensemble
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._shard = self.shard = shard
        self._clusters = clusters
        self._ensemble = ensemble
        self._random = Random(f"{world.setting.seed} faults")
        self._frozen: list[Process] = []
        self._saved: dict[tuple[str, int], tuple[int | None, str]] = {}
        self.asleep_until = 0.0
        """Until then the world does not heal, or shorter: an owner oversleeps."""
        world.strike = self._strike

    def begin(self) -> None:
        setting = self._world.setting
        for _ in range(setting.faults):
            kind = self._random.choice(self._kinds)
            self._at(self._random.uniform(0.5, setting.seconds), kind)

    @property
    def _kinds(self) -> list[Callable[[], None]]:
        return [
            self.kill_driver, self.kill_driver, self._kill_pod, self._kill_pod, self._kill_half, self._kill_worker,
            self._kill_worker, self.kill_server, self._freeze, self._freeze, self._freeze, self._stall, self._stall,
            self._zone_down, self._kafka_down, self._zookeeper_down, self._expire, self._expire, self._split,
            self._stop_fetches, self._stop_fetches, self._restart, self._restart, self._force_offset,
            self._eclipse, self._eclipse, self._take_lock, self._detach, self._kill_in_a_row, self._kill_in_a_row,
        ]  # fmt: skip

    def _at(self, delay: float, work: Callable[[], None]) -> None:
        self._world.later(delay, self._unless_healing, work)

    def _unless_healing(self, work: Callable[[], None]) -> None:
        if not self._world.healing:
            self._world.count(getattr(getattr(work, "func", work), "__name__", "").strip("_").replace("_", " "))
            work()

    def _any(self) -> Node:
        return self._random.choice(self._nodes)

    def _later(self, least: float, most: float, work: Callable[[], None]) -> None:
        """Undo a fault: also while the world heals."""
        self._world.later(self._random.uniform(least, most), work)

    # --- processes ------------------------------------------------------------------------------------------

    def kill_driver(self, node: Node | None = None) -> None:
        node = node or self._any()
        node.kill()
        self._later(0.3, 12, node.start)

    def _kill_pod(self, node: Node | None = None, least: float = 1, most: float = 15) -> None:
        """Aggregator, its workers and its ClickHouse at once."""
        node = node or self._any()
        server = node.server
        node.kill()
        for worker in list(node.workers.values()):
            node.kill_worker(worker)
        self._world.narrate(server.process.name, "is killed")
        server.kill()

        def start() -> None:
            server.start()
            node.start()

        self._later(least, most, start)

    def _kill_half(self) -> None:
        least = self._random.uniform(1, 8)
        pods = self._random.random() < 0.4
        for node in self._random.sample(self._nodes, max(1, len(self._nodes) // 2)):
            if pods:
                self._kill_pod(node, least, least + 5)
            else:
                self.kill_driver(node)

    def _kill_worker(self, node: Node | None = None) -> None:
        node = node or self._any()
        if node.workers:
            node.kill_worker(self._random.choice(list(node.workers.values())))

    def kill_server(self, node: Node | None = None, least: float = 0.5, most: float = 15) -> None:
        server = (node or self._any()).server
        self._world.narrate(server.process.name, "is killed")
        server.kill()
        self._later(least, most, server.start)

    def orphan(self, node: Node, least: float = 1, most: float = 9) -> None:
        """No replica fetches what its server has just written, and its driver is gone: the next owner gets "ok" for a
        part that waits for its quorum. Then the server is gone for longer than its session, and the part with it."""
        node.kill()
        self._later(10, 25, node.start)
        self._lose_part(node, self._random.uniform(least, most))

    def not_over_before(self, seconds: float) -> None:
        """The world does not heal for so long."""
        self.asleep_until = max(self.asleep_until, self._world.loop.time() + seconds)

    def _abandon(self, node: Node | None = None) -> None:
        """The same of a block that is sent again, while all but its server live: its worker gets "ok" for its own part
        when that has not met its quorum in time. Or the server lives, and its session alone is over: then its owner
        keeps the stream, and is who has to notice."""
        node, after = node or self._any(), self._world.setting.quorum_timeout + self._random.uniform(0.3, 2)
        if self._random.random() < 0.3:
            self._lose_part(node, after)
            return
        self._stop_fetches(self._shard.tables, after, after + 8)
        self._at(after, partial(self._expire_server, node))

    def _expire_server(self, node: Node) -> None:
        self._world.narrate("zookeeper", f"session of {node.server.process.name} is over")
        self._shard.expire(node.server)

    def _lose_part(self, node: Node, after: float) -> None:
        self._stop_fetches(self._shard.tables, 8, 20)
        session = self._world.setting.server_session

        def lose_server() -> None:
            self.kill_server(node, session + 1, session + 8)

        self._at(after, lose_server)

    def lose_part_beside_its_owner(self, node: Node) -> None:
        """No replica fetches what its server has just written; server and workers are gone, the driver is not."""
        session = self._world.setting.server_session
        self._stop_fetches(self._shard.tables, session + 2, session + 4)
        for worker in list(node.workers.values()):
            node.kill_worker(worker)
        self.kill_server(node, session + 2, session + 4)
        self.not_over_before(session + 12)

    def _freeze(self, node: Node | None = None) -> None:
        """SIGSTOP and SIGCONT, of the driver alone or with its workers."""
        node = node or self._any()
        if node.driver.alive:
            self._thaw_later(node.freeze(workers=self._random.random() < 0.6), 0.5, 30)

    def put_to_sleep(self, node: Node) -> list[Process]:
        """SIGSTOP, until `wake` or the world heals."""
        asleep = node.freeze(workers=True)
        self._frozen += asleep
        return asleep

    def _freeze_pod(self, node: Node | None = None) -> None:
        """With its server, until another owner has stored what that has just got, or for 8 s."""
        node = node or self._any()
        if not node.driver.running or not node.server.process.running:
            return
        lacking = [(table, row) for table, row in self.in_flight(node) if row not in table.rows]
        node.server.process.frozen = True
        asleep = [*node.freeze(workers=True), node.server.process]
        self._frozen += asleep
        until = self._world.loop.time() + 8

        def look() -> None:
            stored = any((part := table.rows.get(row)) is not None and part.safe for table, row in lacking)
            if stored or self._world.loop.time() > until:
                self.wake(asleep)
            else:
                self._world.later(0.2, look)

        look()

    def _kill_in_a_row(self) -> None:
        """The workers of a stream die one after the other, each once it has stored something, as for want of memory."""
        node = self._any()
        if node.workers:
            self._kill_next(node, self._random.choice(list(node.workers.values())).spec.stream, 0, IN_A_ROW)

    def _kill_next(self, node: Node, stream: StreamId, stored: int, left: int) -> None:
        owner = node.aggregator.owners.get(stream)
        if owner is None or not node.driver.running or self._world.healing or left == 0:
            return
        blocks, workers = owner.report.counters.blocks, [w for w in node.workers.values() if w.spec.stream == stream]
        kills = blocks > stored and bool(workers)
        for worker in workers if kills else ():
            node.kill_worker(worker)
        self._world.later(0.3, self._kill_next, node, stream, blocks if kills else stored, left - kills)

    def _stall(self, node: Node | None = None) -> None:
        """The event loop stands still while the threads of Kafka and ZooKeeper clients continue."""
        node = node or self._any()
        if node.driver.alive:
            node.driver.frozen = True
            self._world.narrate(node.driver.name, "its event loop stands still")
            self._thaw_later([node.driver], 0.3, 9)

    def stand_still(self, node: Node) -> None:
        """Its event loop, until its session is over and the client knows."""
        node.driver.frozen = True
        self._world.narrate(node.driver.name, "its event loop stands still, and its session ends")
        self._ensemble.expire(node.session)
        self._thaw_later([node.driver], 2, 4)

    def _thaw_later(self, processes: list[Process], least: float, most: float) -> None:
        self._frozen += processes
        self._later(least, most, lambda: self.wake(processes))

    def wake(self, processes: list[Process]) -> None:
        for process in processes:
            if process.frozen and process.alive:
                self._world.narrate(process.name, "continues")
                self._world.loop.thaw(process)

    def _restart(self) -> None:
        """In order: as a rolling restart does."""
        node = self._any()
        if node.driver.running and node.aggregator is not None:
            self._world.narrate(node.driver.name, "is asked to end")
            self._world.loop.call_soon(node.aggregator.end, 0, "restart", context=node.driver.context)
            self._later(6, 12, node.start)

    def _eclipse(self) -> None:
        """An owner sleeps; another one takes its streams, continues, and is gone too. So when the first one wakes up it
        gets them back in the very poll in which it hears that it had lost them, its old plans still at hand."""
        cluster = self._random.choice(list(self._clusters.values()))
        owners = [n for n in self._nodes if n.driver.running and (m := cluster.members.get(n.name)) and m.owned]
        if owners and len(self._nodes) <= 4:
            sleeper = self._random.choice(owners)
            asleep = sleeper.freeze(workers=False)
            self._frozen += asleep
            known = {p: cluster.offsets[p].metadata for p in cluster.members[sleeper.name].owned}
            self._world.later(0.5, self._while_asleep, cluster, sleeper, asleep, known, self._world.loop.time() + 40)

    def _while_asleep(
        self, cluster: Cluster, sleeper: Node, asleep: list[Process], known: dict[int, str], until: float
    ) -> None:
        others = [node for node in self._nodes if node is not sleeper]
        moved_on = any(cluster.offsets[p].metadata != metadata for p, metadata in known.items())
        if moved_on and sleeper.name not in cluster.members:
            for node in others:
                node.kill()
        if cluster.members and not self._world.healing and self._world.loop.time() < until:
            self._world.later(0.2, self._while_asleep, cluster, sleeper, asleep, known, until)
            return
        self.wake(asleep)
        for node in others:
            self._later(1, 4, node.start)

    def _detach(self) -> None:
        """A person detaches and attaches the partitions of a table: the rows stay, their hashes leave the window. What
        a worker sends just now is left to it, and what a server has of a worker that died and has not written yet: it
        could be recognised by nothing else."""
        table = self._random.choice(self._shard.tables)
        if table.deletions:
            return  # what was deleted is recognised by its hash alone
        sent = self.sent()
        table.detached = True
        self._world.narrate("shard", f"t{table.number}: its partitions are detached and attached")
        kept = {part.hash for part in table.parts if sent & set(part.rows) or part is table.pending}
        table.blocks = {h: made for h, made in table.blocks.items() if h in kept or table.under_way[h]}

    def sent(self) -> set[Row]:
        """Of what workers are sending just now, and of what servers have and have not written yet."""
        workers = [worker for node in self._nodes for worker in node.workers.values()]
        rows = {
            self._row(worker.node, worker.spec.stream, offset)
            for worker in workers
            for key in worker.inserting
            for offset in range(key.begin, key.end + 1)
        }
        return rows.union(*self._shard.under_way())

    def oversleep(self, node: Node | None = None, *, machine: bool = False, most: float = 40) -> None:
        """Frozen with a lock in its hands until its block, replayed by another owner, has left the window."""
        node = node or self._any()
        begins = self.in_flight(node)
        asleep = node.suspend() if machine else node.freeze(workers=self._random.random() < 0.5)
        self._frozen += asleep
        until = self.asleep_until = self._world.loop.time() + most

        def look() -> None:
            parts = [(table, table.rows.get(row)) for table, row in begins]
            forgotten = any(part is not None and part.hash not in table.blocks for table, part in parts)
            if self._world.healing or self._world.loop.time() > until or forgotten:
                self.asleep_until = 0.0
                self.wake(asleep)
            else:
                self._world.later(0.5, look)

        look()

    def in_flight(self, node: Node) -> list[tuple[Table, Row]]:
        """Of each block in its hands: the table and the first row."""
        owners = [owner for owner in node.aggregator.owners.values() if owner.state is not None]
        blocks = [(o.stream, t.table, t.block.intent.begin) for o in owners for t in o.state.in_flight]
        return [(self._shard.tables[t % IDS - 1], self._row(node, stream, begin)) for stream, t, begin in blocks]

    def _row(self, node: Node, stream: StreamId, offset: int) -> Row:
        return (node.stream_number(stream), *node.log_of(stream).content.message(offset))

    # --- surroundings ---------------------------------------------------------------------------------------

    def _zone_down(self) -> None:
        zone = self._random.choice([0, 1]) if self._world.setting.zoned else 0
        down = self._random.uniform(4, 20)
        for node in self._nodes:
            if node.zone == zone and (zone == 1 or len(self._nodes) < 3 or self._random.random() < 0.8):
                self._kill_pod(node, down, down + 3)
        for cluster in self._clusters.values():
            if cluster.zone == zone:
                self._cluster_down(cluster, down)

    def _kafka_down(self) -> None:
        self._cluster_down(self._random.choice(list(self._clusters.values())), self._random.uniform(1, 20))

    def _cluster_down(self, cluster: Cluster, seconds: float) -> None:
        cluster.up = False
        self._world.narrate(f"kafka {cluster.name}", "is down")

        def back() -> None:
            self._world.narrate(f"kafka {cluster.name}", "is back")
            cluster.back()

        self._later(seconds, seconds, back)

    def _zookeeper_down(self) -> None:
        self._world.zookeeper_up = False
        self._world.narrate("zookeeper", "is down")

        def back() -> None:
            """Sessions that were silent too long are over; of the others it knows until when they live."""
            self._world.zookeeper_up = True
            self._world.narrate("zookeeper", "is back")

        self._later(1, 14, back)

    def _expire(self, node: Node | None = None) -> None:
        """A session is over although its client lives; what it asks meanwhile is answered under the next one."""
        node = node or self._any()
        if node.driver.alive and hasattr(node, "session"):
            node.hiccup_until = self._world.loop.time() + self._random.uniform(0, 4)
            self._ensemble.expire(node.session)

    def _take_lock(self) -> None:
        """A tool that was left alone has a table's lock for longer than any owner waits for it."""
        table = f"default.t{self._random.choice(self._shard.tables).number}"
        self._world.narrate("zookeeper", f"a tool takes the lock of {table}")
        self._ensemble.occupy(table, self._random.uniform(31, 45))

    def _split(self) -> None:
        self._world.split_zones = True
        self._world.narrate("network", "the zones do not reach each other")

        def join() -> None:
            self._world.split_zones = False
            self._world.narrate("network", "the zones reach each other")

        self._later(1, 15, join)

    def _stop_fetches(self, tables: Sequence[Table] = (), least: float = 0.5, most: float = 12) -> None:
        """Replicas do not fetch new parts of these tables, or of some table: quorums hang."""
        chosen = tables or [self._random.choice(self._shard.tables)]
        names = ", ".join(f"t{table.number}" for table in chosen)
        for table in chosen:
            table.fetches_stopped = True
        self._world.narrate("shard", f"{names}: fetches stop")

        def start() -> None:
            for table in chosen:
                table.fetches_stopped = False
            self._world.narrate("shard", f"{names}: fetches continue")

        self._later(least, most, start)

    def _force_offset(self) -> None:
        """A tool sets an offset while the stream has no owner, or a disk of the brokers is restored from a backup: then
        metadata and offset go back together. An operator puts it right after a while."""
        cluster = self._random.choice(list(self._clusters.values()))
        partition = self._random.randrange(len(cluster.logs))
        entry = cluster.offsets[partition]
        if entry.offset is None or entry.forced or not cluster.up:
            return
        for node in self._nodes:  # the group must be empty for it
            self.kill_driver(node)
        cluster.members.clear()
        old = self.gone_back(cluster, partition)
        if old and self._random.random() < 0.6:
            correct = entry.force(*self._random.choice(old), restores=True)
            self._world.count("went back")
        else:
            correct = entry.force(entry.offset + 7, entry.metadata, restores=True)
        self._world.narrate(f"kafka {cluster.name}", f"a tool sets partition {partition} to {entry.offset}")
        self._later(12, 20, correct)

    def gone_back(self, cluster: Cluster, partition: int) -> list[tuple[int, str]]:
        """Former commits of the partition, of which a later one's block may be stored."""
        marker = self._ensemble.marker(cluster.logs[partition].stream)
        pairs = cluster.offsets[partition].earlier
        return [pair for pair in pairs if marker is not None and _number(pair[1]) < marker.seq]

    # --- the worst moments ----------------------------------------------------------------------------------

    def _strike(self, point: str, replica: int) -> None:
        world = self._world
        if point == "lock checked":
            return  # so often, and so seldom of interest, that one kind of event alone is about it
        more = OFTENER if point == "replay sent" else 1
        if not world.chance(more * world.setting.chances.strike):
            return
        node = self._nodes[replica]
        blows = [self.kill_driver, self._kill_pod, self._freeze, self._freeze, self._stall, self._kill_worker]
        if point == "part written":  # the moment before another replica has it
            blows = [self.kill_server, self._kill_pod, self._kill_pod, self._freeze, self.orphan, self.orphan]
        if point == "offset read":  # and not yet the marker
            blows = [self._freeze]
        if point == "replay sent":
            blows = [self._abandon, self._abandon, self._abandon]
        if point == "insert arrives":
            blows = [self._freeze_pod]
        if point == "lock held":
            blows = [self._expire, self._freeze, self.oversleep, self.oversleep, self.oversleep]
        blow = self._random.choice([*blows, self._expire])
        world.narrate("fault", f"{point} of {node.name}")
        if blow == self.oversleep or self._random.random() < 0.5:
            blow(node)  # in the midst of what it does, up to its next wait
        else:
            world.later(0, blow, node)

    # --- the end --------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """From now on nothing new goes wrong; what is down comes back by itself, frozen processes at once."""
        world = self._world
        world.healing = True
        world.narrate("world", "heals")
        for process in self._frozen:
            if process.frozen and process.alive:
                world.loop.thaw(process)
        for table in (*self._shard.tables, *self._shard.renamed):
            table.fetches_stopped = False
        if world.counts.get("corrupt replay"):
            for node in self._nodes:  # a block that was rebuilt differently waits for the next owner
                node.kill()
                self._later(1, 3, node.start)


def _number(text: str) -> int:
    decoded = codec.decode(text)
    assert isinstance(decoded, Metadata)
    return decoded.seq
