"""What was true outside the killed process: asked of Kafka, ZooKeeper and ClickHouse, never of the aggregator."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from blockhouse.errors import BlockhouseError
from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from e2e.kit.watch import BlockInFlight
from e2e.stack.clickhouse import ClickHouseServer


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed offset of one stream and the metadata beside it."""

    offset: int
    metadata: str

    def has_in_flight(self, begin: int, end: int) -> bool:
        """Whether the metadata records the block as unacknowledged. A message has one table: offsets name a block."""
        metadata = codec.decode(self.metadata, self.offset)
        if not isinstance(metadata, Metadata):
            return False
        blocks = [entry.in_flight for entry in metadata.tables]
        return any(block is not None and (block.begin, block.end) == (begin, end) for block in blocks)


def read_committed(bootstrap: str, group: str, stream: StreamId) -> Committed:
    """What the group has committed for a stream. BlockhouseError when it has committed nothing."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        (found,) = consumer.committed([TopicPartition(stream.topic, stream.partition)], timeout=60)
    finally:
        consumer.close()
    if found.error is not None or found.offset < 0:
        raise BlockhouseError(f"group {group} has no committed offset for {stream}: {found.error}")
    return Committed(found.offset, found.metadata or "")


def stored_rows(replica: ClickHouseServer, block: BlockInFlight) -> int:
    """Rows of the block that this replica has, whether or not their quorum is met."""
    stream = StreamId.parse(block.stream)
    ((count,),) = replica.execute(
        f"SELECT count() FROM {block.table} WHERE _kafka_cluster = %(cluster)s AND _kafka_partition = %(partition)s"
        " AND _kafka_offset BETWEEN %(begin)s AND %(end)s",
        {"cluster": stream.cluster, "partition": stream.partition, "begin": block.begin, "end": block.end},
    )
    return int(count)
