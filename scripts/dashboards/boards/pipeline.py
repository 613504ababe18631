"""One pipeline."""

from __future__ import annotations

from scripts.dashboards.common import (
    BY_PIPELINE,
    NAMESPACE,
    OF_PIPELINE,
    OWNER,
    PIPELINE,
    STREAM,
    at_risk,
    quantiles,
    rate,
)
from scripts.dashboards.panels import Board, Listing, Query, Row, Series, Unit

BOARD = Board(
    uid="blockhouse-pipeline",
    title="Blockhouse: pipeline",
    text="One pipeline: rates, lag, inserts, takeovers, and what its processes use.",
    variables=(NAMESPACE, PIPELINE),
    rows=(
        Row("At risk", at_risk(OF_PIPELINE)),
        Row(
            "Flow",
            (
                Series(
                    "Messages",
                    "Messages a second put into blocks, by topic.",
                    (Query(rate("blockhouse_messages_total", OF_PIPELINE, "topic"), "{{topic}}"),),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Rows, ten largest tables",
                    "Rows a second stored and acknowledged.",
                    (Query(f"topk(10, {rate('blockhouse_rows_total', OF_PIPELINE, 'table')})", "{{table}}"),),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Oldest message not stored, ten streams",
                    "By stream. The reason of a stream that stands still is in the list below.",
                    (Query(f"topk(10, blockhouse_lag_seconds{{{OF_PIPELINE}}})", STREAM),),
                    Unit.SECONDS,
                    bad_above=30,
                ),
                Series(
                    "From message to stored row",
                    "Oldest message of each block to its acknowledgement.",
                    quantiles("blockhouse_message_latency_seconds", OF_PIPELINE),
                    Unit.SECONDS,
                ),
            ),
        ),
        Row(
            "What stands still",
            (
                Listing(
                    "Streams",
                    "Seconds since when, and why: docs/lag.md.",
                    (Query(f"time() - blockhouse_stream_standing_since_timestamp_seconds{{{OF_PIPELINE}}}"),),
                    Unit.SECONDS,
                ),
                Listing(
                    "Tables behind their streams",
                    "Messages of the table that wait, and why.",
                    (Query(f"blockhouse_table_pending_messages{{{OF_PIPELINE}}} > 0"),),
                ),
                Listing(
                    "Hazards",
                    "What nothing has gone wrong with yet: docs/lag.md, docs/clickhouse.md.",
                    (
                        Query(
                            f"blockhouse_table_hazard{{{OF_PIPELINE}}} == 1"
                            f" or blockhouse_stream_hazard{{{OF_PIPELINE}}} == 1",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Inserts",
            (
                Series(
                    "Insert with quorum",
                    "Time of one insert. Long ones: replicas are slow, or wait for each other.",
                    quantiles("blockhouse_insert_seconds", OF_PIPELINE),
                    Unit.SECONDS,
                ),
                Series(
                    "Wait for a table's lock",
                    "One block of a table is inserted at a time: long waits need more rows a block, or a shard.",
                    quantiles("blockhouse_lock_wait_seconds", OF_PIPELINE),
                    Unit.SECONDS,
                ),
                Series(
                    "Inserts to be tried again",
                    "By ClickHouse's code; 286: an earlier part has not reached its quorum.",
                    (Query(rate("blockhouse_insert_failures_total", OF_PIPELINE, "code"), "{{code}}"),),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Rows a block",
                    "Small blocks make many parts: raise blocks.maxAge.",
                    (
                        Query(
                            f"{rate('blockhouse_rows_total', OF_PIPELINE, BY_PIPELINE)}"
                            f" / {rate('blockhouse_blocks_total', OF_PIPELINE, BY_PIPELINE)}",
                            "{{ingest_blockhouse_dev_pipeline}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Takeovers and safeguards",
            (
                Series(
                    "Blocks rebuilt and sent again",
                    "After an owner changed, and how each was decided.",
                    (
                        Query(rate("blockhouse_replays_total", OF_PIPELINE, BY_PIPELINE), "sent again"),
                        Query(rate("blockhouse_deduplicated_total", OF_PIPELINE, BY_PIPELINE), "known to the server"),
                        Query(
                            rate("blockhouse_provenance_decisions_total", OF_PIPELINE, BY_PIPELINE),
                            "decided by provenance",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Commits",
                    "By outcome; all but `committed` make the stream rebuild.",
                    (Query(rate("blockhouse_commits_total", OF_PIPELINE, "outcome"), "{{outcome}}"),),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Alarms, rejoins, lost sessions",
                    "The log of the aggregator has the reason of each.",
                    (
                        Query(rate("blockhouse_alarms_total", OF_PIPELINE, "reason"), "alarm {{reason}}"),
                        Query(rate("blockhouse_rejoins_total", OF_PIPELINE, BY_PIPELINE), "rejoin"),
                        Query(
                            rate("blockhouse_zookeeper_sessions_lost_total", OF_PIPELINE, BY_PIPELINE),
                            "ZooKeeper session",
                        ),
                        Query(rate("blockhouse_faults_injected_total", OF_PIPELINE, "point"), "fault at {{point}}"),
                    ),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Streams owned",
                    "By each aggregator. One whose replica takes no rows owns none: others have its streams.",
                    (Query(f"count by (pod, instance) (blockhouse_stream_owned{{{OF_PIPELINE}}} == 1)", OWNER),),
                ),
            ),
        ),
        Row(
            "Processes",
            (
                Series(
                    "Processor",
                    "Cores used by each aggregator, without its Spark workers.",
                    (Query(f"rate(process_cpu_seconds_total{{{OF_PIPELINE}}}[$__rate_interval])", OWNER),),
                ),
                Series(
                    "Memory",
                    "Resident bytes of each aggregator, without its Spark workers.",
                    (Query(f"process_resident_memory_bytes{{{OF_PIPELINE}}}", OWNER),),
                    Unit.BYTES,
                ),
            ),
        ),
    ),
)
