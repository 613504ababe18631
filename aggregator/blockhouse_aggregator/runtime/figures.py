"""The aggregator's metrics. Labels are bounded: streams, tables of the pipeline, reasons; never offsets or messages."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from blockhouse_aggregator.runtime.lag_figures import LagFigures
from blockhouse_aggregator.runtime.series import STREAM

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)


class Figures:
    """All metrics of one aggregator in one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.rows = Counter("blockhouse_rows_total", "Rows stored and acknowledged", ["table"], registry=r)
        self.messages = Counter("blockhouse_messages_total", "Messages sealed", STREAM, registry=r)
        self.blocks = Counter("blockhouse_blocks_total", "Blocks acknowledged", ["table"], registry=r)
        self.block_bytes = Counter("blockhouse_block_bytes_total", "Native bytes stored", ["table"], registry=r)
        self.replays = Counter("blockhouse_replays_total", "Blocks rebuilt and sent again", STREAM, registry=r)
        self.deduplicated = Counter(
            "blockhouse_deduplicated_total", "Replayed blocks which the server recognised", STREAM, registry=r
        )
        self.by_provenance = Counter(
            "blockhouse_provenance_decisions_total",
            "Blocks decided by their provenance columns",
            STREAM,
            registry=r,
        )
        self.surplus = Counter(
            "blockhouse_surplus_rows_total", "Rows found stored more than once", ["table"], registry=r
        )
        self.dead = Counter("blockhouse_dead_letters_total", "Messages dead-lettered", STREAM, registry=r)
        self.holes = Counter("blockhouse_holes_total", "Offsets without a message", STREAM, registry=r)
        self.inserts_failed = Counter(
            "blockhouse_insert_failures_total",
            "Inserts to be tried again, by ClickHouse's code, or by connection, timeout, quorum, driver without one",
            ["table", "code"],
            registry=r,
        )
        self.last_insert = Gauge(
            "blockhouse_last_insert_timestamp_seconds",
            "Unix time of the newest acknowledged block",
            ["table"],
            registry=r,
        )
        self.replication_queue = Gauge(
            "blockhouse_replication_queue_entries",
            "Entries of the local replica's replication queue, of the pipeline's tables",
            ["table"],
            registry=r,
        )
        self.lost_parts = Gauge(
            "blockhouse_lost_parts",
            "Parts of the pipeline's tables that every replica has lost; of table * all since the server's start",
            ["table"],
            registry=r,
        )
        self.lock_wait = Histogram(
            "blockhouse_lock_wait_seconds",
            "Wait for the table's lock before an insert",
            buckets=_SECONDS,
            registry=r,
        )
        self.insert_seconds = Histogram(
            "blockhouse_insert_seconds", "Time of an insert with quorum", buckets=_SECONDS, registry=r
        )
        self.latency = Histogram(
            "blockhouse_message_latency_seconds",
            "Oldest message of a block to its acknowledgement",
            buckets=_SECONDS,
            registry=r,
        )
        self.lag = LagFigures(r)
        self.commits = Counter("blockhouse_commits_total", "Metadata commits", [*STREAM, "outcome"], registry=r)
        self.metadata_units = Gauge("blockhouse_metadata_units", "UTF-16 units of the metadata", STREAM, registry=r)
        self.metadata_limit = Gauge(
            "blockhouse_metadata_limit_units", "The most that the brokers accept, by the configuration", registry=r
        )
        self.sessions_lost = Counter(
            "blockhouse_zookeeper_sessions_lost_total",
            "Sessions with ZooKeeper that ended: its locks with them",
            registry=r,
        )
        self.alarms = Counter("blockhouse_alarms_total", "Alarms by reason", ["reason"], registry=r)
        self.stopped = Gauge(
            "blockhouse_stream_stopped",
            "1 while the stream must not be consumed until a person decides",
            [*STREAM, "reason"],
            registry=r,
        )
        self.stream_hazards = Gauge(
            "blockhouse_stream_hazard",
            "1 while something about the stream's identity cannot be checked",
            [*STREAM, "reason"],
            registry=r,
        )
        self.table_blocked = Gauge(
            "blockhouse_table_blocked",
            "1 while a block of the table must not be inserted until a person decides",
            [*STREAM, "table", "reason"],
            registry=r,
        )
        self.hazards = Gauge(
            "blockhouse_table_hazard", "1 while a table is unsafe to load", ["table", "reason"], registry=r
        )
        self.faults = Counter(
            "blockhouse_faults_injected_total", "Faults injected on purpose", ["point", "action"], registry=r
        )
        self.rejoins = Counter(
            "blockhouse_rejoins_total", "Streams dropped to rejoin after a commit of unknown fate", registry=r
        )
