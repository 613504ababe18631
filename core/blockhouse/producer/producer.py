"""`Producer`: rows in, messages out, to the local Kafka cluster or, while it is unavailable, to another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from blockhouse.config.endpoints import KafkaCluster, ZooKeeper
from blockhouse.config.load import load_as
from blockhouse.config.producer import ProducerConfig
from blockhouse.errors import Permanent
from blockhouse.producer.rows import Row, RowEncoder, UnknownColumn
from blockhouse.producer.transport import Delivery, Transport
from blockhouse.schema.model import TableHistory


class SchemaSource(Protocol):
    """Where schema histories come from, e.g. the pipeline's ZooKeeper."""

    def get(self, name: str) -> TableHistory | None:
        """The history of `database.table`, or None when the pipeline has never heard of it."""


class Producer:
    """Sends rows of any table of a pipeline. NOT thread-safe: one per thread.

    `clusters` are the pipeline's Kafka clusters, `local` the name of the one to prefer, `topic` the shard's topic.
    A message is one Kafka message whatever its number of rows: it is stored as a whole or dead-lettered as a whole.
    Exactly once counts from Kafka on; see `docs/producing.md` for the one case in which a producer doubles a message.
    """

    def __init__(
        self,
        clusters: Sequence[KafkaCluster],
        schemas: SchemaSource,
        local: str,
        *,
        topic: str,
        delivery_timeout: float = 10.0,
        on_delivery: Callable[[Delivery], None] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`settings` are further librdkafka settings. Raises ValueError if no cluster is called `local`."""
        if local not in {cluster.name for cluster in clusters}:
            raise ValueError(f"no Kafka cluster {local!r}: there are {', '.join(c.name for c in clusters)}")
        ordered = sorted(clusters, key=lambda cluster: cluster.name != local)
        self._schemas = schemas
        self._encoders: dict[str, RowEncoder] = {}
        self._transport = Transport(
            ordered, topic, delivery_timeout=delivery_timeout, on_delivery=on_delivery, settings=settings
        )
        self._where = "this pipeline"
        """Where `schemas` are, for messages."""
        self._own = ExitStack()
        """What is closed with it."""

    @classmethod
    def from_config(cls, file: Path | str, *, on_delivery: Callable[[Delivery], None] | None = None) -> Self:
        """By a YAML file as in docs/producing.md: clusters, topic, and the ZooKeeper that has the schemas, to which it
        connects. Raises ConfigError with all faults of the file, Retryable while ZooKeeper does not answer."""
        config = load_as(ProducerConfig, Path(file))
        with ExitStack() as own:
            producer = cls(
                config.clusters,
                own.enter_context(_schemas(config.zookeeper)),
                config.preferred,
                topic=config.topic,
                delivery_timeout=config.delivery_timeout,
                on_delivery=on_delivery,
                settings=config.settings,
            )
            zookeeper = config.zookeeper
            producer._where = f"`zookeeper.root` {zookeeper.root} of {zookeeper.servers}"
            producer._own = own.pop_all()
        return producer

    def send(
        self,
        table: str,
        rows: Sequence[Row],
        *,
        partition: int | None = None,
        key: bytes | None = None,
        tag: Any = None,
    ) -> None:
        """Queue `rows` of `database.table` as one message; waits while the queue is full.

        Without `partition` Kafka's partitioner chooses one, by `key` if given. `tag` comes back in the Delivery.
        Raises Permanent for rows that do not fit the table, a table without a schema, or a topic that no cluster has;
        Retryable while the schema cannot be read.
        """
        if partition is not None and key is not None:
            raise ValueError("give a partition or a key, not both")
        encoder = self._encoders.get(table) or self._load(table)
        try:
            value = encoder.encode(rows)
        except UnknownColumn:
            newer = self._load(table)  # the column may have been added since
            if newer.revision == encoder.revision:
                raise
            encoder, value = newer, newer.encode(rows)
        headers = {"table": encoder.table, "format": "rows", "schema": str(encoder.revision)}
        self._transport.send(value, headers, partition=partition, key=key, tag=tag)
        self._transport.poll()

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every message has been delivered. Raises DeliveryFailed for those that no cluster took, Retryable
        if some are still being tried after `timeout` seconds."""
        self._transport.flush(timeout)

    def close(self) -> None:
        """Wait as `flush` does, then close what `from_config` has opened, also when that raises."""
        with self._own:
            self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self, table: str) -> RowEncoder:
        history = self._schemas.get(table)
        if history is None or history.current is None:
            raise Permanent(
                f"table {table} has no schema in {self._where}: name it database.table, use the root of the "
                "aggregators, or register it by `blockhouse schema apply` or, if it exists, `blockhouse schema add`",
                reason="UnknownTable",
            )
        if not self._encoders:  # before the first message: a cluster without the topic lets each one wait in vain
            self._transport.require_topic()
        encoder = self._encoders[table] = RowEncoder(history, history.current)
        return encoder


def _schemas(config: ZooKeeper) -> AbstractContextManager[SchemaSource]:
    """The pipeline's schema histories, from its ZooKeeper: core has no client of it, the wheel has."""
    (entry,) = entry_points(group="blockhouse.schema_sources", name="zookeeper")
    source: AbstractContextManager[SchemaSource] = entry.load()(config)
    return source
