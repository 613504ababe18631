"""One shard: its topic and streams."""

from __future__ import annotations

from scripts.dashboards.common import NAMESPACE, OF_PIPELINE, OF_SHARD, PIPELINE, STREAM, TOPIC, rate
from scripts.dashboards.panels import Board, Listing, Query, Row, Series, Unit

BOARD = Board(
    uid="blockhouse-shard",
    title="Blockhouse: shard",
    text="One shard is one topic: its streams, their owners, offsets and metadata.",
    variables=(NAMESPACE, PIPELINE, TOPIC),
    rows=(
        Row(
            "Streams",
            (
                Listing(
                    "Owners",
                    "Which aggregator owns which stream. A stream without a row has no owner.",
                    (Query(f"blockhouse_stream_owned{{{OF_SHARD}}} == 1"),),
                ),
                Listing(
                    "Stopped",
                    "Until a person decides: `blockhouse streams list`.",
                    (Query(f"blockhouse_stream_stopped{{{OF_SHARD}}} == 1"),),
                ),
            ),
        ),
        Row(
            "Offsets",
            (
                Series(
                    "Messages not stored",
                    "Up to the high watermark, by stream.",
                    (Query(f"blockhouse_lag_messages{{{OF_SHARD}}}", STREAM),),
                ),
                Series(
                    "Oldest message not stored",
                    "By stream.",
                    (Query(f"blockhouse_lag_seconds{{{OF_SHARD}}}", STREAM),),
                    Unit.SECONDS,
                    bad_above=30,
                ),
                Series(
                    "Written, read, stored",
                    "Offsets a second: what producers write, what is read of it, below what all is stored.",
                    (
                        Query(
                            f"sum(rate(blockhouse_stream_high_watermark{{{OF_SHARD}}}[$__rate_interval]))",
                            "written",
                        ),
                        Query(f"sum(rate(blockhouse_stream_position{{{OF_SHARD}}}[$__rate_interval]))", "read"),
                        Query(f"sum(rate(blockhouse_stream_stored_offset{{{OF_SHARD}}}[$__rate_interval]))", "stored"),
                    ),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Behind an open transaction",
                    "Messages above the last stable offset: a transaction was neither ended nor aborted.",
                    (
                        Query(
                            f"blockhouse_stream_high_watermark{{{OF_SHARD}}}"
                            f" - blockhouse_stream_last_stable_offset{{{OF_SHARD}}}",
                            STREAM,
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Protocol",
            (
                Series(
                    "Blocks in flight",
                    "Committed as intents and not acknowledged yet.",
                    (Query(f"blockhouse_in_flight_blocks{{{OF_SHARD}}}", STREAM),),
                ),
                Series(
                    "Tables that lag",
                    "Tables behind the position of their stream.",
                    (Query(f"blockhouse_lagging_tables{{{OF_SHARD}}}", STREAM),),
                ),
                Series(
                    "Metadata of a commit",
                    "Share of what the brokers accept; beyond it a stream waits for its tables.",
                    (
                        Query(
                            f"blockhouse_metadata_units{{{OF_SHARD}}}"
                            " / on (namespace, pod, instance) group_left"
                            f" blockhouse_metadata_limit_units{{{OF_PIPELINE}}}",
                            STREAM,
                        ),
                    ),
                    Unit.SHARE,
                    bad_above=0.8,
                ),
                Series(
                    "Offsets without a message",
                    "Compacted, aborted or control records.",
                    (Query(rate("blockhouse_holes_total", OF_SHARD, "cluster"), "{{cluster}}"),),
                    Unit.PER_SECOND,
                ),
            ),
        ),
    ),
)
