"""Rows that a person deletes by a mutation, and what the person decides about blocks that are blocked for it.

Such rows must not come back: neither a window that has forgotten their block nor their absence is a reason to insert
them again. What else is in a block that is blocked is stored or cut again, as `blockhouse streams resolve` has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from blockhouse.metadata.model import InFlight
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decision, Decisions, block_subject
from blockhouse_aggregator.protocol.state import Stage
from tests.simulation.clickhouse import Row, Shard, Table
from tests.simulation.clock import Process
from tests.simulation.kafka import Cluster
from tests.simulation.operator import remove
from tests.simulation.world import World
from tests.simulation.zookeeper import IDS, Ensemble, ZkSession

if TYPE_CHECKING:
    from tests.simulation.faults import Misfortunes
    from tests.simulation.replica import Node

AMBIGUOUS = "ProvenanceAmbiguous"
LOOK = 1.0
PATIENCE = 12.0
"""Seconds for which a block is blocked before a person has decided, besides those that a grant lives."""


class Deletions:
    """`delete` is the event."""

    def __init__(
        self, world: World, nodes: list[Node], shard: Shard, clusters: Mapping[str, Cluster], ensemble: Ensemble,
        misfortunes: Misfortunes,
    ) -> None:  # fmt: skip
        self._world = world
        self._nodes = nodes
        self._shard = shard
        self._clusters = clusters
        self._ensemble = ensemble
        self._misfortunes = misfortunes
        self._random = Random(f"{world.setting.seed} deletions")
        self._due: dict[tuple[StreamId, int, int], float] = {}

    def delete(self) -> bool:
        """ALTER DELETE of what some owner has in flight, or of anything, once it is stored; some of its rows or all."""
        flying = {row for node in self._nodes if node.aggregator for _, row in self._misfortunes.in_flight(node)}
        # What was deleted is recognised by its hash alone, which a detached partition has lost.
        tables = [table for table in self._shard.tables if not table.detached]
        parts = [(table, part) for table in tables for part in table.parts if part.safe]
        parts = [p for p in parts if flying & set(p[1].rows)] or (parts if self._random.random() < 0.05 else [])
        if not parts:
            return False
        table, part = self._random.choice(parts)
        gone = set(part.rows if self._random.random() < 0.7 else part.rows[:1])
        self._world.narrate("shard", f"t{table.number}: a mutation deletes {len(gone)} of {len(part.rows)} rows")
        if not table.deletions:
            self._world.later(LOOK, self._look)
        table.deletions.append(self._world.now_ms())
        table.deleted |= gone
        remove(table, gone.__contains__)
        for cluster in self._clusters.values():
            for log in cluster.logs:
                self._world.causes.setdefault(str(log.stream), set()).update((AMBIGUOUS, "BlockDecided", "BlockRecut"))
        return True

    # --- the person -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        now, blocked = self._world.loop.time(), list(self._blocked())
        for node, stream, table, intent in blocked:
            key = (stream, table.number, intent.begin)
            due = self._due.setdefault(key, now + 4 * self._world.setting.quorum_timeout + PATIENCE)
            rows = self._rows(node, stream, table, intent)
            if now >= due and self._world.zookeeper_up and not rows & self._misfortunes.sent() and not table.pending:
                self._decide(stream, table, intent, rows)
                self._due[key] = now + 30
        self._world.later(LOOK, self._look)

    def _blocked(self) -> Iterator[tuple[Node, StreamId, Table, InFlight]]:
        for node in self._nodes:
            owners = node.aggregator.owners.items() if node.driver.running and node.aggregator is not None else ()
            for stream, owner in owners:
                if owner.state is None or self._clusters[stream.cluster].owner(stream.partition) != node.name:
                    continue
                for entry in owner.state.in_flight:
                    if entry.block.stage is Stage.BLOCKED and entry.block.reason == AMBIGUOUS:
                        yield node, stream, self._shard.tables[entry.table % IDS - 1], entry.block.intent

    def _rows(self, node: Node, stream: StreamId, table: Table, intent: InFlight) -> set[Row]:
        good = node.log_of(stream).content.good(table.number, intent.begin, intent.end + 1)
        return {(node.stream_number(stream), *message) for message in good}

    def _decide(self, stream: StreamId, table: Table, intent: InFlight, rows: set[Row]) -> None:
        """A block of which something was stored counts as stored, and the rest is repaired."""
        there = rows & (table.rows.keys() | table.deleted)
        if there and (lacking := tuple(sorted(rows - there))):
            self._shard.repair(table, lacking)
        action = f"{'stored' if there else 'absent'} {intent.begin}-{intent.end}"
        self._world.narrate("operator", f"{stream}, t{table.number}: {action}")
        stands_in: Any = ZkSession(self._ensemble, Process("an operator"), 0)
        decision = Decision(action=action, by="operator", at_ms=self._world.now_ms(), why="simulated")
        Decisions(stands_in).put(block_subject(stream, f"default.t{table.number}"), decision)
