"""What the local replica reports of its replication: how far it is behind, and parts that no replica has any more.

Of the tables that this pipeline loads: a server may have thousands of others, whose series no one here can act on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from blockhouse_aggregator.clickhouse.lost_parts import ANY_TABLE
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.series import show_only

log = structlog.get_logger(__name__)
DATA_LOSS = "ReplicatedDataLoss"


class Shard(Protocol):
    """`local_shard.LocalShard` is the real one."""

    async def queue_lengths(self) -> Mapping[str, int]: ...
    async def lost_parts(self) -> Mapping[str, int]: ...


@dataclass(slots=True)
class ReplicationWatch:
    """Must raise an alarm each time a part is lost: no one else notices, and its rows are in Kafka for a while only."""

    shard: Shard
    figures: Figures
    _lost: dict[str, int] = field(default_factory=dict)

    async def look(self, loaded: Collection[str]) -> None:
        """Ask once for the tables `loaded`, as `database.table`; the series of one that the replica does not have any
        more end. Raises Retryable when the replica does not answer."""
        queues = await self.shard.queue_lengths()
        show_only(self.figures.replication_queue, {(t,): n for t, n in queues.items() if t in loaded})
        counted = {t: n for t, n in (await self.shard.lost_parts()).items() if t in loaded or t == ANY_TABLE}
        show_only(self.figures.lost_parts, {(t,): n for t, n in counted.items()})
        for table, lost in counted.items():
            self._note(table, lost)

    def _note(self, table: str, lost: int) -> None:
        """What was lost before this process began is reported too, once, and counts as no new alarm: a table's number
        never falls. (A server's own does, when it is started again.)"""
        known = self._lost.get(table)
        self._lost[table] = lost
        new = lost - (known or 0)
        if new <= 0:
            return
        if known is not None:
            self.figures.alarms.labels(DATA_LOSS).inc(new)
        where = "some table of this server" if table == ANY_TABLE else f"table {table}"
        text = (
            f"every replica has lost {new} parts of {where}{'' if known is not None else ', at some time'}: `blockhouse"
            " audit` names the messages, `blockhouse repair` loads them again while Kafka has them (docs/operations.md)"
        )
        log.warning("alarm", reason=DATA_LOSS, table=table, message=text)
