"""One table."""

from __future__ import annotations

from scripts.dashboards.common import NAMESPACE, OF_TABLE, OWNER, PIPELINE, TABLE, rate
from scripts.dashboards.panels import Board, Listing, Number, Query, Row, Series, Unit

BOARD = Board(
    uid="blockhouse-table",
    title="Blockhouse: table",
    text="One table on all shards: what is stored, what waits, and what its replicas have left to do.",
    variables=(NAMESPACE, PIPELINE, TABLE),
    rows=(
        Row(
            "Stored",
            (
                Series(
                    "Rows",
                    "Rows a second stored and acknowledged.",
                    (Query(rate("blockhouse_rows_total", OF_TABLE, "table"), "{{table}}"),),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Bytes",
                    "In ClickHouse's native format, before its own compression.",
                    (Query(rate("blockhouse_block_bytes_total", OF_TABLE, "table"), "{{table}}"),),
                    Unit.BYTES_PER_SECOND,
                ),
                Series(
                    "Blocks",
                    "Blocks a second: each is a part that ClickHouse merges later.",
                    (Query(rate("blockhouse_blocks_total", OF_TABLE, "table"), "{{table}}"),),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Since the newest block",
                    "Seconds; a table without messages grows older, too.",
                    (
                        Query(
                            "time() - max by (namespace, table)"
                            f" (blockhouse_last_insert_timestamp_seconds{{{OF_TABLE}}})",
                            "{{namespace}} {{table}}",
                        ),
                    ),
                    Unit.SECONDS,
                ),
            ),
        ),
        Row(
            "Waiting",
            (
                Listing(
                    "Messages that wait",
                    "Of this table, behind the position of its streams, with the reason.",
                    (Query(f"blockhouse_table_pending_messages{{{OF_TABLE}}}"),),
                ),
                Series(
                    "Distance of its cursor from the log's end",
                    "Offsets of all tables, an upper bound of what waits.",
                    (Query(f"blockhouse_table_cursor_distance{{{OF_TABLE}}}", "{{pod}} {{table}}: {{reason}}"),),
                ),
                Listing(
                    "Blocked and at risk",
                    "`blockhouse streams list` names the block, docs/clickhouse.md the hazard.",
                    (
                        Query(
                            f"blockhouse_table_blocked{{{OF_TABLE}}} == 1 or blockhouse_table_hazard{{{OF_TABLE}}} == 1"
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Replicas",
            (
                Series(
                    "Replication queue",
                    "Entries of each replica that it has to fetch or merge.",
                    (Query(f"blockhouse_replication_queue_entries{{{OF_TABLE}}}", f"{OWNER} {{{{table}}}}"),),
                    bad_above=50,
                ),
                Series(
                    "Inserts to be tried again",
                    "By ClickHouse's code.",
                    (Query(rate("blockhouse_insert_failures_total", OF_TABLE, "table, code"), "{{table}} {{code}}"),),
                    Unit.PER_SECOND,
                ),
                Number(
                    "Rows stored more than once",
                    "Counted when an old block was decided: `blockhouse audit` lists them.",
                    (Query(f"sum(blockhouse_surplus_rows_total{{{OF_TABLE}}}) or vector(0)"),),
                    bad_above=1,
                ),
            ),
        ),
    ),
)
