"""What must never happen, checked at every commit, grant, insert and write, from knowledge no replica has.

It shares only the metadata codec with the product. The words I1 to I7 are those of docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata, TableEntry
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.session import SessionState
from blockhouse_aggregator.gate.messages import Grant
from tests.simulation.clickhouse import Row, Shard, Table
from tests.simulation.kafka import Cluster, SimSession
from tests.simulation.logs import BAD, HEADLESS, Content, StreamLog
from tests.simulation.reading import Bytes
from tests.simulation.world import World
from tests.simulation.zookeeper import IDS

if TYPE_CHECKING:
    from tests.simulation.replica import Node
    from tests.simulation.worker import GateSession


@dataclass(slots=True)
class Line:
    """The commits of a stream since it was started, or started afresh: the last one, of which content of the log it is,
    and up to where tables and bad messages were checked. Where a person let it start, another owner may do so again at
    `begin` as long as nothing of it was inserted."""

    content: Content
    begin: int = 0
    may_begin_again: bool = False
    last: Metadata | None = None
    checked: dict[int, int] = field(default_factory=dict)
    dead_checked: int = 0

    def continues_in(self, content: Content, since: int) -> None:
        """It is of a later content, which differs from there on."""
        self.checked = {number: min(since, bound) for number, bound in self.checked.items()}
        self.dead_checked = min(since, self.dead_checked)
        self.content = content


class Oracle:
    """Judges one world. Every method reports the first harm to the world and continues."""

    def __init__(self, world: World, shard: Shard, clusters: Mapping[str, Cluster]) -> None:
        self._world = world
        self._shard = shard
        self._clusters = clusters
        self._lines: dict[StreamId, Line] = {}
        self._accepted: dict[StreamId, int] = {}
        self._intents: set[tuple[StreamId, int, int, int, int]] = set()
        shard.doubled = self.doubled

    def number(self, stream: StreamId) -> int:
        return list(self._clusters).index(stream.cluster) * self._world.setting.partitions + stream.partition

    # --- ClickHouse -----------------------------------------------------------------------------------------

    def doubled(self, table: Table, row: Row) -> None:
        again = ", after it was deleted" if row in table.deleted else ""
        self._world.hurt(f"DUPLICATE: row {row[1]} of stream {row[0]} is written to t{table.number} twice{again}")

    def inserts(self, stream: StreamId, content: Bytes, grant: Grant) -> None:
        """I1 and I7: exactly a block whose intent was committed."""
        if (line := self._lines.get(stream)) is not None:
            line.may_begin_again = False
        key = (stream, content.table, content.offsets[0], content.offsets[-1], content.crc(str(stream)))
        if key not in self._intents:
            block = f"[{content.offsets[0]}, {content.offsets[-1]}] of t{content.table}, {stream}"
            self._world.hurt(f"I1: block {block} is inserted, and no committed intent names exactly it")

    def grants(self, node: Node, session: GateSession, grant: Grant) -> None:
        """What must hold in the moment in which a driver allows an insert."""
        table = grant.block.table
        lock = node.locks.held.get(table)
        if lock is None:
            self._world.hurt(f"LOCK: {node.driver.name} grants an insert into {table} without its lock")
        elif lock._generation != node.session.generation or node.session.state is not SessionState.CONNECTED:
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
                alive = worker.process.alive and grant.deadline_ms / 1000 > node.unix() + node.behind
                if key.table == table and connected and alive:
                    self._world.hurt(f"LOCK: {node.driver.name} releases {table} while {worker.process.name} inserts")

    # --- Kafka ----------------------------------------------------------------------------------------------

    def accepted(self, stream: StreamId, start: int) -> None:
        """An operator lets the stream start afresh there: its next first commit is no mistake."""
        self._accepted[stream] = start

    def last(self, stream: StreamId) -> Metadata | None:
        """What was committed last, whatever a tool has set since."""
        line = self._lines.get(stream)
        return line.last if line is not None else None

    def committed(self, stream: StreamId, offset: int, text: str, session: SimSession) -> None:
        """A commit is stored: of the owner, next in sequence, adding up, and passing nothing that is not safe."""
        cluster, hurt = self._clusters[stream.cluster], self._world.hurt
        if cluster.owner(stream.partition) != session.instance:
            hurt(f"I6: {session.instance} commits {stream}, which {cluster.owner(stream.partition)} owns")
        metadata = codec.decode(text)
        assert isinstance(metadata, Metadata)
        log = cluster.logs[stream.partition]
        line = self._line(log, metadata)
        last = line.last
        if cluster.offsets[stream.partition].forced and stream.partition in session.read_forced and last is not None:
            hurt(f"RESET: {session.instance} commits {stream} over an offset that a tool has set")
        if metadata.seq != (last.seq if last is not None else 0) + 1:
            hurt(f"SEQUENCE: {session.instance} commits {metadata.seq} of {stream} after {last.seq if last else 0}")
        if last is not None and metadata.position < last.position:
            hurt(f"BACKWARD: {stream} goes from {last.position} back to {metadata.position}")
        w = metadata.window
        if w.reference + w.sealed + w.dead + w.holes + metadata.pending != metadata.position:
            hurt(f"I4: the counts of {stream} do not add up to {metadata.position}: {text}")
        if offset != metadata.committed_offset:
            hurt(f"OFFSET: {stream} commits {offset} for {metadata.committed_offset}")
        line.last = metadata
        for entry in metadata.tables:
            if (b := entry.in_flight) is not None:
                self._intents.add((stream, _number(entry), b.begin, b.end, b.crc))
        self._judge(log, line, metadata)

    def _line(self, log: StreamLog, metadata: Metadata) -> Line:
        """The line that the commit continues, or begins because an operator allowed it to."""
        line, allowed = self._lines.get(log.stream), log.stream in self._accepted
        if line is None or (metadata.seq == 1 and (allowed or line.may_begin_again)):
            begin = self._accepted.pop(log.stream, 0 if line is None else line.begin)
            content = log.contents[0] if line is None else self._content_of(log, metadata)
            again = allowed or (line is not None and line.may_begin_again)
            line = self._lines[log.stream] = Line(content, begin, again, dead_checked=begin)
        return line

    def _content_of(self, log: StreamLog, metadata: Metadata) -> Content:
        """The newest of the topic that the commit names: it may have been created again since the owner asked."""
        cluster = self._clusters[log.stream.cluster]
        same = (c for c in reversed(log.contents) if cluster.id_of(c.topic) == metadata.topic_id)
        return next(same, log.content)

    def _judge(self, log: StreamLog, line: Line, metadata: Metadata) -> None:
        """I5, against what the log held. What was read may be cut from the log by now, which is no one's fault; but
        once a stream continues in what was written since, it must not leave out the beginning of that."""
        cluster, known = self._clusters[log.stream.cluster], log.contents[log.contents.index(line.content) :]
        same = [content for content in known if cluster.id_of(content.topic) == metadata.topic_id]
        if not same:
            text = f"{metadata.topic_id}, after that of {cluster.id_of(line.content.topic)}"
            self._world.hurt(f"LOSS: {log.stream} commits position {metadata.position} of topic {text}")
            return
        harms = []
        for content in same:
            if content is not line.content:
                line.continues_in(content, min(c.since for c in known[1 : known.index(content) + 1]))
            harms = list(self._harms(log, line, metadata))
            if not harms:
                break
        for harm in harms:
            self._world.hurt(harm)
        self._settled(line, metadata)

    def _harms(self, log: StreamLog, line: Line, metadata: Metadata) -> Iterator[str]:
        """What the metadata no longer mentions must be stored for good, dead-lettered, or nothing."""
        stream, content = log.stream, line.content
        if metadata.position > content.end:
            yield f"I5: {stream} is at {metadata.position}, its log ends at {content.end}"
        entries = {_number(entry): entry for entry in metadata.tables}
        for number in range(self._world.setting.tables):
            entry = entries.get(number, TableEntry(number + 1))
            block, lagging = entry.in_flight, _lagging(metadata, entry)
            if block is not None:
                found = Bytes(number, content.good(number, block.begin, block.end + 1))
                if len(found.messages) != block.messages or found.crc(str(stream)) != block.crc:
                    yield f"I4: intent [{block.begin}, {block.end}] of t{number}, {stream} is not what the log holds"
                for offset, _, _ in content.good(number, block.end + 1, lagging)[:1]:
                    yield f"I5: {stream} passes offset {offset} of t{number}, which is in no block"
            begin = line.checked.get(number, line.begin)
            for offset, why in self.missing(stream, content, number, begin, _settled(metadata, entry)):
                yield f"LOSS: {stream} passes offset {offset} of t{number}, whose row {why}"
        for offset in range(line.dead_checked, min(metadata.position, content.end)):
            kind = content.kinds[offset]
            if (kind == HEADLESS or kind >= BAD) and content.message(offset) not in log.dead:
                lags = entries.get(kind % BAD) if kind >= BAD else None
                if lags is None or lags.cursor is None or lags.cursor > offset:
                    yield f"LOSS: {stream} passes the bad message {offset}, which is in no dead-letter topic"

    def _settled(self, line: Line, metadata: Metadata) -> None:
        """Nothing of this has to be checked again. Lagging tables' bad messages come later."""
        entries = {_number(entry): entry for entry in metadata.tables}
        for number in range(self._world.setting.tables):
            begin = line.checked.get(number, line.begin)
            line.checked[number] = max(begin, _settled(metadata, entries.get(number, TableEntry(number + 1))))
        cursors = [e.cursor for e in metadata.tables if e.cursor is not None]
        line.dead_checked = min([metadata.position, *cursors])

    def missing(
        self, stream: StreamId, content: Content, table: int, begin: int, end: int
    ) -> Iterator[tuple[int, str]]:
        """Offsets of the table's storable messages whose row is not safe, and why."""
        named, number = self._shard.tables[table], self.number(stream)
        for message in content.good(table, begin, end):
            part = named.rows.get((number, *message))
            if (part is None or not part.safe) and not _gone_with_a_former_table(named, (number, *message)):
                yield message[0], "is not stored" if part is None else "has no quorum yet"

    # --- the end --------------------------------------------------------------------------------------------

    def unfinished(self) -> str:
        """Why the world is not at rest; empty when everything is stored and recorded."""
        for cluster in self._clusters.values():
            for log, entry in zip(cluster.logs, cluster.offsets, strict=True):
                last = self.last(log.stream)
                if log.end and (last is None or entry.forced):
                    return f"{log.stream} was never committed"
                if last is not None and (last.position < log.end or last.tables):
                    return f"{log.stream} is at {last.position} of {log.end}, open: {last.tables}"
        return next(self._never_noticed(), "")

    def _never_noticed(self) -> Iterator[str]:
        """All is at rest. What the logs hold by now, which is not what they held when it was read, is stored too."""
        for log in (log for cluster in self._clusters.values() for log in cluster.logs if len(log.contents) > 1):
            for number in range(self._world.setting.tables):
                for offset, why in self.missing(log.stream, log.content, number, 0, log.end):
                    yield f"LOSS: {log.stream} has passed offset {offset} of t{number}, whose row {why}"


def _gone_with_a_former_table(table: Table, row: Row) -> bool:
    """On purpose. Of one that was dropped all rows are, the acknowledged and the others; of one that
    was renamed those that its copy could not have, once they are there with their quorum."""
    if row in table.deleted or (table.dropped and row in table.rows):
        return True
    former = table.former
    if former is None:
        return False
    part = former.rows.get(row) if row in table.left_behind else None
    gone = part is not None and (part.safe or former.dropped)
    return gone or _gone_with_a_former_table(former, row)


def _number(entry: TableEntry) -> int:
    """Of the table, whichever schema history its id is of."""
    return entry.table % IDS - 1


def _lagging(metadata: Metadata, entry: TableEntry) -> int:
    """Up to where the table's messages are in blocks."""
    return metadata.position if entry.cursor is None else entry.cursor


def _settled(metadata: Metadata, entry: TableEntry) -> int:
    """Up to where the table's messages are stored."""
    lagging = _lagging(metadata, entry)
    return min(entry.in_flight.begin, lagging) if entry.in_flight is not None else lagging
