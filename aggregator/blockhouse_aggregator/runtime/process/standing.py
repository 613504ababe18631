"""Why a stream, or a table of it, does not move although messages wait: read off its owner, whatever its task does.

It only reads. The reasons are words of docs/lag.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from blockhouse.contract.aggregator import Standing
from blockhouse_aggregator.kafka.log_ends import Ends
from blockhouse_aggregator.protocol.state import Stage, StreamState, TableState
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.tables.catalog import Catalog

SILENT_TASK = 5.0
"""Seconds beyond a block's age for which a task may be silent."""
PATIENCE = 6.0
"""Seconds beyond a block's age for which a stream with waiting messages may show no progress."""

Why = tuple[str, str]
"""Reason and text."""


def stored_below(owner: StreamOwner) -> int | None:
    """Everything below this offset is stored or is a dead letter; None while that is not known."""
    state = owner.state
    if state is None:
        return owner.committed
    begins = [t.block.intent.begin for t in state.in_flight if t.block is not None]
    return min([state.position, *begins, *(t.cursor for t in state.tables if t.cursor is not None)])


def unstored(owner: StreamOwner, high: int) -> int:
    """Messages that are not stored, up to the high watermark; of a stream without a state the offsets, at most."""
    state = owner.state
    if state is None:
        return max(0, high - owner.committed) if owner.committed is not None else 0
    in_flight = sum(t.block.intent.messages for t in state.in_flight if t.block is not None)
    return max(0, high - state.position) + in_flight + state.pending


def patience(owner: StreamOwner) -> float:
    """Seconds after which a stream that shows no progress stands still."""
    blocks = owner.context.config.blocks
    return PATIENCE + max([blocks.max_age, *(table.max_age for table in blocks.tables.values())])


@dataclass(frozen=True, slots=True)
class LagContext:
    """What is wrong beside a stream, each empty when nothing is: its Kafka cluster as the group's member sees it, the
    answers of its brokers about ends of logs, the replica."""

    cluster: str = ""
    brokers: str = ""
    replica: str = ""


def why_stream(owner: StreamOwner, context: LagContext, ends: Ends | None) -> Why:
    """The first of the possible causes that fits, the outermost first."""
    if owner.stop is not None:
        return owner.stop.reason, owner.stop.message
    if context.brokers:
        return "KafkaSilent", context.brokers
    if context.cluster:
        return "KafkaUnavailable", context.cluster
    if owner.state is None:
        return "TakeoverWaits", owner.takeover_waits or "its owner is still asking where to begin"
    if context.replica:
        return "ReplicaUnfit", context.replica
    return next(_of_state(owner, owner.state, ends), ("NoProgress", "nothing of it moves, and no cause is known"))


def _of_state(owner: StreamOwner, state: StreamState, ends: Ends | None) -> Iterator[Why]:
    task, silence = owner.task, loop_time() - owner.task.heard
    silent = silence > patience(owner) - PATIENCE + SILENT_TASK
    if not task.present and task.failure:
        yield "TaskFails", task.failure
    if not task.present and silent:  # between two leases there is none for a moment: an alert would begin again
        yield "NoTask", f"no Spark task has worked for it for {silence:.0f} s"
    if task.trouble is not None:
        yield task.trouble
    for table in state.in_flight:
        if table.block is not None and table.block.stage is not Stage.SEALED:
            yield _of_table(owner, table)
    if task.present and silent:
        yield "TaskSilent", f"its Spark task has been silent for {silence:.0f} s"
    if ends is not None and ends.stable < ends.high and state.position >= ends.stable:
        yield (
            "OpenTransaction",
            f"a producer's transaction is open at offset {ends.stable}: nothing behind it may be read",
        )
    for table in state.tables:
        if table.cursor is not None:
            yield _of_table(owner, table)


def _of_table(owner: StreamOwner, table: TableState) -> Why:
    """Why a stream does not move, if for a table of it. What a server answered about the table names it already."""
    name = owner.context.catalog.name(table.table)
    reason, text = why_table(owner, table)
    return reason, text if f"table {name}:" in text else f"{name}: {text}"


def why_table(owner: StreamOwner, table: TableState) -> Why:
    """Why messages of the table are not stored."""
    catalog: Catalog = owner.context.catalog
    name = catalog.name(table.table)
    block = table.block
    if block is not None:
        if block.stage is Stage.BLOCKED:
            return block.reason or "Blocked", "its block waits for a decision"
        if trouble := owner.report.troubles.get(name):
            return "InsertFails", trouble
        if block.stage is Stage.REPLAY:
            return "Replaying", "its block is rebuilt and sent again"
        return "Inserting", "its block is being inserted"
    known = catalog.known(name)
    if known is not None and known.unavailable:
        return known.unavailable, known.why
    if table.table in owner.awaited_revisions.tables():
        return "RevisionUnknown", "its next message has a schema revision that is not known"
    return "CatchingUp", "it is behind the others, and is read again from its cursor"


def mark_of(table: TableState) -> object:
    """What changes whenever messages of the table are stored or skipped: not when more of them come."""
    return table.cursor, table.block.intent.begin if table.block is not None else None


@dataclass(slots=True)
class Watched:
    """When a stream, or a table of it, was last seen to move, in milliseconds; `mark` is anything that changes then."""

    mark: object
    since_ms: int

    def nothing_waits(self, now_ms: int) -> None:
        """Nothing is there that could stand still."""
        self.since_ms = now_ms

    def moved(self, mark: object, now_ms: int) -> bool:
        """Note what is seen now; True when it differs from what was seen before."""
        if mark == self.mark:
            return False
        self.mark, self.since_ms = mark, now_ms
        return True


def standing(why: Why, since_ms: int) -> Standing:
    """As the status page has it; texts of clients are cut."""
    return Standing(reason=why[0], text=why[1][:500], since_ms=since_ms)
