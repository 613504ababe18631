"""A block with everything the decision about its insert needs. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse.metadata.model import InFlight
from blockhouse.schema.model import Revision
from blockhouse.streams import StreamId, incarnation
from blockhouse_aggregator.clickhouse.presence import Origin
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.gate.messages import BlockKey

FOREIGN_UNDECIDED = "ForeignBlockUndecided"
FOREIGN_TEXT = (
    "another aggregator sent this block, without provenance, and the server may have forgotten it or its table was"
    " altered since: compare its rows with the table, then `blockhouse streams resolve`"
)


@dataclass(frozen=True, slots=True)
class BlockToStore:
    """`revision` is the schema revision the block was encoded with (None: not known here); `fresh` as in
    `protocol.state.Block`; `sole` as in `clickhouse.presence.Origin`; `repair` as in `gate.messages.Grant`."""

    stream: StreamId
    topic_id: str
    table: ServerTable
    intent: InFlight
    revision: Revision | None
    fresh: bool
    sole: bool = True
    repair: bool = False

    @property
    def origin(self) -> Origin:
        """How its rows are found."""
        named = self.revision is not None and self.revision.names_topic
        topic = incarnation(self.stream.topic, self.topic_id) if named else ""
        return Origin(self.stream.cluster, self.stream.partition, topic, self.sole)

    @property
    def key(self) -> BlockKey:
        return BlockKey(table=self.table.full_name, begin=self.intent.begin, end=self.intent.end)

    @property
    def token(self) -> str:
        """The deduplication token: the same for every attempt to insert this block, by any aggregator."""
        s = self.stream
        return f"{self.topic_id}/{s.partition}/{self.table.full_name}/{self.intent.begin}-{self.intent.end}"
