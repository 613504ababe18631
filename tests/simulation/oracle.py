"""What must never happen, checked at every commit, grant, insert and write, from knowledge no replica has.

It shares only the metadata codec with the product. The words I1 to I7 are those of docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from blockhouse.metadata import codec
from blockhouse.metadata.model import InFlight, Metadata, TableEntry
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.session import SessionState
from blockhouse_aggregator.gate.messages import Grant
from tests.simulation.clickhouse import Row, Shard, Table
from tests.simulation.kafka import Cluster, SimSession
from tests.simulation.reading import Bytes
from tests.simulation.world import BAD, HEADLESS, StreamLog, World

if TYPE_CHECKING:
    from tests.simulation.replica import Node
    from tests.simulation.worker import GateSession


class Oracle:
    """Judges one world. Every method reports the first harm to the world and continues."""

    def __init__(self, world: World, shard: Shard, clusters: Mapping[str, Cluster]) -> None:
        self._world = world
        self._shard = shard
        self._clusters = clusters
        self._last: dict[StreamId, Metadata] = {}
        self._intents: set[tuple[StreamId, int, int, int, int]] = set()
        self._checked: dict[tuple[StreamId, int], int] = {}
        self._dead_checked: dict[StreamId, int] = {}
        shard.doubled = self.doubled

    def number(self, stream: StreamId) -> int:
        return list(self._clusters).index(stream.cluster) * self._world.setting.partitions + stream.partition

    # --- ClickHouse -----------------------------------------------------------------------------------------

    def doubled(self, table: Table, row: Row) -> None:
        self._world.hurt(f"DUPLICATE: row {row[1]} of stream {row[0]} is written to t{table.number} twice")

    def inserts(self, stream: StreamId, content: Bytes, grant: Grant) -> None:
        """I1 and I7: exactly a block whose intent was committed."""
        key = (stream, content.table, content.offsets[0], content.offsets[-1], content.crc(str(stream)))
        if key not in self._intents:
            block = f"[{content.offsets[0]}, {content.offsets[-1]}] of t{content.table}, {stream}"
            self._world.hurt(f"I1: block {block} is inserted, and no committed intent names exactly it")

    def grants(self, node: Node, session: GateSession, grant: Grant) -> None:
        """What must hold in the moment in which a driver allows an insert."""
        table = grant.block.table
        lease = node.locks.held.get(table)
        if lease is None:
            self._world.hurt(f"LOCK: {node.driver.name} grants an insert into {table} without its lock")
        elif lease._generation != node.session.generation or node.session.state is not SessionState.CONNECTED:
            self._world.hurt(f"LOCK: {node.driver.name} grants an insert into {table} by a session that is over")
        cluster, topic, partition = session.hello.work.split("/")
        stream = StreamId(cluster, topic, int(partition))
        if (stream, session.hello.epoch) not in node.member(cluster).confirmed:
            self._world.hurt(f"UNPROVEN: {node.driver.name} grants an insert of {stream} before a commit of its own")
        snapshot = node.shard_port.seen.get(table)
        if grant.ask_provenance and (snapshot is None or snapshot.pending):
            self._world.hurt(f"PROVENANCE: {node.driver.name} has it asked of {table} while a quorum is pending")

    def released(self, node: Node, table: str) -> None:
        """The lock of a table is let go: no insert that it protects may be under way."""
        for worker in node.workers.values():
            session = worker.session
            for key, grant in worker.inserting.items():
                connected = session is not None and not session.broken and worker.driver is node.driver
                alive = worker.process.alive and grant.deadline_ms / 1000 > node.unix()
                if key.table == table and connected and alive:
                    self._world.hurt(f"LOCK: {node.driver.name} releases {table} while {worker.process.name} inserts")

    # --- Kafka ----------------------------------------------------------------------------------------------

    def committed(self, stream: StreamId, offset: int, text: str, session: SimSession) -> None:
        """A commit is stored: of the owner, next in sequence, adding up, and passing nothing that is not safe."""
        cluster, hurt = self._clusters[stream.cluster], self._world.hurt
        if cluster.owner(stream.partition) != session.instance:
            hurt(f"I6: {session.instance} commits {stream}, which {cluster.owner(stream.partition)} owns")
        if cluster.offsets[stream.partition].forced and stream.partition in session.read_forced:
            hurt(f"RESET: {session.instance} commits {stream} over an offset that a tool has set")
        metadata = codec.decode(text)
        assert isinstance(metadata, Metadata)
        last = self._last.get(stream)
        if metadata.seq != (last.seq if last is not None else 0) + 1:
            hurt(f"SEQUENCE: {session.instance} commits {metadata.seq} of {stream} after {last.seq if last else 0}")
        if last is not None and metadata.position < last.position:
            hurt(f"BACKWARD: {stream} goes from {last.position} back to {metadata.position}")
        w = metadata.window
        if w.reference + w.sealed + w.dead + w.holes + metadata.pending != metadata.position:
            hurt(f"I4: the counts of {stream} do not add up to {metadata.position}: {text}")
        if offset != metadata.committed_offset:
            hurt(f"OFFSET: {stream} commits {offset} for {metadata.committed_offset}")
        self._last[stream] = metadata
        self._covers(stream, cluster.logs[stream.partition], metadata)

    def _covers(self, stream: StreamId, log: StreamLog, metadata: Metadata) -> None:
        """I5: what the metadata no longer mentions is stored for good, dead-lettered, or nothing."""
        if metadata.position > log.end:
            self._world.hurt(f"I5: {stream} is at {metadata.position}, its log ends at {log.end}")
        entries = {entry.table - 1: entry for entry in metadata.tables}
        for number in range(self._world.setting.tables):
            entry = entries.get(number, TableEntry(number + 1))
            block = entry.in_flight
            lagging = metadata.position if entry.cursor is None else entry.cursor
            if block is not None:
                self._names(stream, log, number, block)
                missed = log.good(number, block.end + 1, lagging)
                if missed:
                    self._world.hurt(f"I5: {stream} passes offset {missed[0]} of t{number}, which is in no block")
            self._stored(stream, log, number, min(block.begin if block else lagging, lagging))
        self._buried(stream, log, metadata, entries)

    def _names(self, stream: StreamId, log: StreamLog, number: int, block: InFlight) -> None:
        content = Bytes(number, log.good(number, block.begin, block.end + 1))
        if len(content.offsets) != block.messages or content.crc(str(stream)) != block.crc:
            self._world.hurt(
                f"I4: intent [{block.begin}, {block.end}] of t{number}, {stream} is not what the log holds"
            )
        self._intents.add((stream, number, block.begin, block.end, block.crc))

    def _stored(self, stream: StreamId, log: StreamLog, number: int, bound: int) -> None:
        key = (stream, number)
        begin = self._checked.get(key, 0)
        rows = self._shard.tables[number].rows
        for offset in log.good(number, begin, bound):
            part = rows.get((self.number(stream), offset))
            if part is None or not part.safe:
                what = "is not stored" if part is None else "has no quorum yet"
                self._world.hurt(f"LOSS: {stream} passes offset {offset} of t{number}, whose row {what}")
        self._checked[key] = max(begin, bound)

    def _buried(self, stream: StreamId, log: StreamLog, metadata: Metadata, entries: Mapping[int, TableEntry]) -> None:
        begin = self._dead_checked.get(stream, 0)
        for offset in range(begin, metadata.position):
            kind = log.kinds[offset]
            if (kind == HEADLESS or kind >= BAD) and offset not in log.dead:
                entry = entries.get(kind % BAD) if kind >= BAD else None
                if entry is None or entry.cursor is None or entry.cursor > offset:
                    self._world.hurt(
                        f"LOSS: {stream} passes the bad message {offset}, which is in no dead-letter topic"
                    )
        # Lagging tables' bad messages come later: begin again from the least cursor.
        cursors = [e.cursor for e in metadata.tables if e.cursor is not None]
        self._dead_checked[stream] = min([metadata.position, *cursors])

    # --- the end --------------------------------------------------------------------------------------------

    def unfinished(self) -> str:
        """Why the world is not at rest; empty when everything is stored and recorded."""
        for cluster in self._clusters.values():
            for log, entry in zip(cluster.logs, cluster.offsets, strict=True):
                last = self._last.get(log.stream)
                if log.end and (last is None or entry.forced):
                    return f"{log.stream} was never committed"
                if last is not None and (last.position < log.end or last.tables):
                    return f"{log.stream} is at {last.position} of {log.end}, open: {last.tables}"
        return ""
