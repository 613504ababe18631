"""Messages that wait for a table they cannot be put into, before the brokers delete them: into the dead-letter topic.

Until then waiting is right: the table may yet be created, fixed or get its revision. At EXPIRING of the topic's
retention it is not, for what retention takes is lost. By time only: a topic that is cut by bytes gives no date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from blockhouse.config.pipeline import Blocks
from blockhouse.errors import BlockhouseError
from blockhouse.streams import StreamId
from blockhouse_aggregator.gate.messages import Scan
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.ports import Group

log = structlog.get_logger(__name__)

EXPIRING = 0.8
"""Part of the topic's retention after which a waiting message is dead-lettered."""
LEAST_LOOK, MOST_LOOK = 1.0, 30.0


@dataclass(slots=True)
class Retention:
    """How far a stream's log is about to expire: `below` is an offset, 0 while nothing is."""

    stream: StreamId
    below: int = 0
    _next: float = 0.0
    _reported: set[int] = field(default_factory=set)

    def unreported(self, due: Mapping[int, Due]) -> tuple[Alarm, ...]:
        """An alarm for each table, the first time only."""
        new = {table: found for table, found in due.items() if table not in self._reported}
        self._reported |= new.keys()
        text = "its messages are about to expire, and are dead-lettered"
        return tuple(Alarm("RetentionNear", f"{found.reason}: {text}", table) for table, found in new.items())

    async def look(self, group: Group, state: StreamState | None, now_ms: int) -> None:
        """Ask the brokers now and then, while any table lags. What cannot be known now stays as it was."""
        now = loop_time()
        if state is None or now < self._next or not any(table.cursor is not None for table in state.tables):
            return
        try:
            retention = await group.retention(self.stream)
            self.below = 0
            if retention is not None:
                self.below = await group.offset_at(self.stream, now_ms - int(retention * EXPIRING * 1000))
        except BlockhouseError as error:
            log.warning("stream.retention_unknown", stream=str(self.stream), error=str(error))
            retention = None
        self._next = now + (MOST_LOOK if retention is None else min(MOST_LOOK, max(LEAST_LOOK, retention / 50)))


class Due(NamedTuple):
    cursor: int
    reason: str


def expiring(state: StreamState, below: int, hopeless: Mapping[int, str]) -> dict[int, Due]:
    """Lagging tables with messages below `below`, of those that cannot be loaded, and the reason why not."""
    return {
        t.table: Due(t.cursor, hopeless[t.table])
        for t in state.tables
        if t.block is None and t.cursor is not None and t.cursor < below and t.table in hopeless
    }


def burial(
    state: StreamState,
    below: int,
    due: Mapping[int, Due],
    name: Callable[[int], str],
    number: int,
    blocks: Blocks,
    patience: float,
    seconds: float,
) -> Scan:
    """The scan that dead-letters what is due. It ends at P at the latest and takes nothing of any other table."""
    return Scan(
        round=number,
        start=min(found.cursor for found in due.values()),
        position=state.position,
        stop=min(below, state.position),
        resume={name(table): found.cursor for table, found in due.items()},
        exclude=tuple(name(t.table) for t in state.tables if t.table not in due),
        dead_tables={name(table): found.reason for table, found in due.items()},
        max_bytes=blocks.max_bytes,
        max_rows=blocks.max_rows,
        entries=0,
        leader_epoch=state.leader_epoch,
        topic_id=state.topic_id,
        patience=patience,
        max_seconds=seconds,
    )
