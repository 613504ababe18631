"""A person who looks after the streams that stand still, and does what docs/protocol.md has for each reason.

Decisions are recorded as `blockhouse streams accept` records them. What `blockhouse audit` and `blockhouse repair`
would take in hours is done at once here, when nothing of the stream is under way any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decisions, stream_subject
from blockhouse_aggregator.protocol.takeover import Stop
from blockhouse_aggregator.runtime.ports import StreamFacts
from blockhouse_aggregator.runtime.stream.acceptance import decide, decision
from blockhouse_aggregator.runtime.stream.resumption import facts_of, may_be_cut
from tests.simulation.clickhouse import Row, Shard, Table
from tests.simulation.clock import Process
from tests.simulation.kafka import Cluster
from tests.simulation.logs import BAD, HEADLESS, StreamLog
from tests.simulation.world import World
from tests.simulation.zookeeper import Ensemble, ZkSession

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle
    from tests.simulation.replica import Node

LOOK = 1.0
PATIENCE = (9.0, 20.0)
"""Seconds for which a stream stands still before a person has decided."""


class Operator:
    """`begin` lets the person look, once a second."""

    def __init__(
        self, world: World, nodes: list[Node], shard: Shard, clusters: Mapping[str, Cluster], ensemble: Ensemble,
        oracle: Oracle,
    ) -> None:  # fmt: skip
        self._world = world
        self._nodes = nodes
        self._shard = shard
        self._clusters = clusters
        self._ensemble = ensemble
        self._oracle = oracle
        self._random = Random(f"{world.setting.seed} operator")
        self._due: dict[tuple[StreamId, str], float] = {}

    def begin(self) -> None:
        self._world.later(LOOK, self._look)

    def _look(self) -> None:
        now, stopped = self._world.loop.time(), self._stopped()
        self._due = {key: at for key, at in self._due.items() if key in stopped}
        least = 2 * self._world.setting.quorum_timeout + 1  # a grant's lifetime
        for key in stopped:
            due = self._due.setdefault(key, now + max(least, self._random.uniform(*PATIENCE)))
            if now >= due and self._world.zookeeper_up and self._decides(*key):
                self._due[key] = now + least + 20
        self._world.later(LOOK, self._look)

    def _stopped(self) -> list[tuple[StreamId, str]]:
        """Streams that stand still, and why, as their owners report it."""
        found = {}
        for node in self._nodes:
            if node.driver.running and node.aggregator is not None:
                for stream, owner in node.aggregator.owners.items():
                    if owner.stop is not None and self._clusters[stream.cluster].owner(stream.partition) == node.name:
                        found[(stream, owner.stop.reason)] = None
        return list(found)

    def _decides(self, stream: StreamId, reason: str) -> bool:
        """False when it is too early."""
        cluster = self._clusters[stream.cluster]
        log, entry, last = cluster.logs[stream.partition], cluster.offsets[stream.partition], self._oracle.last(stream)
        if reason == "SchemaHistoryIncomplete" and self._ensemble.marker(stream) is None:
            # Of a stream without a marker nothing is stored: a person deletes its offset, and it begins again.
            entry.offset, entry.metadata = None, ""
            self._oracle.accepted(stream, 0)
            return True
        if entry.restoring or self._examined(stream) != reason:
            return False
        match reason:
            case "TopicRecreated":
                self._accept(stream, reason)
                self._oracle.accepted(stream, 0)
            case "MarkerMissing":
                self._accept(stream, reason)
            case "LogTruncated" if self._quiet(stream):
                start = min(log.content.since, log.end)
                self._delete(log, start)
                self._restart(log, reason, start)
            case "OffsetsWentBack" | "SchemaHistoryReplaced" if self._quiet(stream) and last is not None:
                self._restart(log, reason, min(last.position, log.end))
                entry.forced = False
            case _:
                return False
        return True

    def _examined(self, stream: StreamId) -> str:
        """For which reason the stream's next owner would stop, as `blockhouse streams accept` examines it."""
        cluster = self._clusters[stream.cluster]
        entry, content = cluster.offsets[stream.partition], cluster.logs[stream.partition].content
        known = StreamFacts(
            entry.offset, entry.metadata, 0, content.end, cluster.topic_id, compacted=False,
            leader_epoch=content.leader_epoch,
        )  # fmt: skip
        facts = replace(facts_of(known, self._ensemble.marker(stream)), history=self._ensemble.identity)
        if (recorded := facts.metadata) is not None and may_be_cut(facts, recorded, content.leader_epoch):
            facts = replace(facts, cut=not content.reaches(recorded.position, recorded.leader_epoch))
        outcome = decide(facts)
        return outcome.reason if isinstance(outcome, Stop) else ""

    def _accept(self, stream: StreamId, reason: str, start: int | None = None) -> None:
        decided = decision(reason, start, "operator", "simulated", self._world.now_ms())
        self._world.narrate("operator", f"{stream}: {decided.action}")
        self._world.causes.setdefault(str(stream), set()).update(("StreamRestarted", "MarkerAdopted"))
        stands_in: Any = ZkSession(self._ensemble, Process("an operator"), 0)
        Decisions(stands_in).put(stream_subject(stream), decided)

    def _restart(self, log: StreamLog, reason: str, start: int) -> None:
        """Start afresh there, with everything below it stored."""
        self._repair(log, start)
        self._accept(log.stream, reason, start)
        self._oracle.accepted(log.stream, start)

    def _quiet(self, stream: StreamId) -> bool:
        """Whether nothing of the stream is under way or waits for its quorum."""
        number = self._oracle.number(stream)
        return not any(
            row[0] == number
            for table in self._shard.tables
            for rows in (*self._shard.under_way(), *((table.pending.rows,) if table.pending is not None else ()))
            for row in rows
        )

    def _repair(self, log: StreamLog, end: int) -> None:
        number, content = self._oracle.number(log.stream), log.content
        for table in self._shard.tables:
            lacking: list[Row] = [
                (number, *content.message(offset))
                for offset, _ in self._oracle.missing(log.stream, content, table.number, 0, end)
            ]
            if lacking:
                self._world.narrate("operator", f"repairs {len(lacking)} rows of t{table.number}, {log.stream}")
                self._shard.repair(table, tuple(lacking))
        bad = (o for o in range(end) if content.kinds[o] == HEADLESS or content.kinds[o] >= BAD)
        log.dead.update(map(content.message, bad))

    def _delete(self, log: StreamLog, begin: int) -> None:
        """Rows of messages that the log has no more would answer for those that took their offsets."""
        number, content = self._oracle.number(log.stream), log.content

        def gone(row: Row) -> bool:
            of_topic = row[0] == number and row[2] == content.topic
            return of_topic and row[1] >= begin and row[1:] != content.message(row[1])

        for table in self._shard.tables:
            remove(table, gone)


def remove(table: Table, gone: Callable[[Row], bool]) -> None:
    """A mutation that deletes rows."""
    for part in list(table.parts):
        left = tuple(row for row in part.rows if not gone(row))
        for row in part.rows:
            if gone(row) and table.rows.get(row) is part:
                del table.rows[row]
        if left:
            part.rows = left
        else:
            table.parts.remove(part)
