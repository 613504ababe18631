"""What several dashboards share: their choices, the series they read, and the panels of what is at risk."""

from __future__ import annotations

from scripts.dashboards.panels import Number, Query, Variable

NAMESPACE = Variable("namespace", "namespace", "blockhouse_build_info")
PIPELINE = Variable("pipeline", "ingest_blockhouse_dev_pipeline", "blockhouse_stream_owned")
TOPIC = Variable("topic", "topic", "blockhouse_stream_owned")
TABLE = Variable("table", "table", "blockhouse_rows_total")

IN_NAMESPACE = 'namespace=~"$namespace"'
OF_PIPELINE = IN_NAMESPACE + ',ingest_blockhouse_dev_pipeline=~"$pipeline"'
OF_SHARD = OF_PIPELINE + ',topic=~"$topic"'
OF_TABLE = OF_PIPELINE + ',table=~"$table"'
BY_PIPELINE = "namespace, ingest_blockhouse_dev_pipeline"
STREAM = "{{cluster}}/{{topic}}/{{partition}}"
OWNER = "{{pod}} {{instance}}"


def rate(metric: str, of: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{of}}}[$__rate_interval]))"


def quantiles(metric: str, of: str) -> tuple[Query, ...]:
    buckets = f"sum by (le) (rate({metric}_bucket{{{of}}}[$__rate_interval]))"
    return tuple(Query(f"histogram_quantile({q}, {buckets})", f"{q:.0%}") for q in (0.5, 0.99))


def at_risk(of: str) -> tuple[Number, ...]:
    """What needs a person; each is 0 when nothing does."""
    return (
        Number(
            "Streams stopped",
            "Not consumed until a person decides: `blockhouse streams list`.",
            (Query(f"sum(blockhouse_stream_stopped{{{of}}}) or vector(0)"),),
            bad_above=1,
        ),
        Number(
            "Streams that stand still",
            "Messages wait and nothing is stored: docs/lag.md has a row for each reason.",
            (Query(f"count(blockhouse_stream_standing_since_timestamp_seconds{{{of}}}) or vector(0)"),),
            bad_above=1,
        ),
        Number(
            "Replicas that take no rows",
            "The ClickHouse server beside an aggregator is silent, unreachable or read-only: `/readyz` has the cause.",
            (Query(f"sum(blockhouse_replica_unfit{{{of}}}) or vector(0)"),),
            bad_above=1,
        ),
        Number(
            "Blocks that wait for a decision",
            "Neither sent nor left out without risk to rows: `blockhouse streams list`.",
            (Query(f"sum(blockhouse_table_blocked{{{of}}}) or vector(0)"),),
            bad_above=1,
        ),
        Number(
            "Dead letters, 1 h",
            "Messages that could not be loaded: `blockhouse dlq list`.",
            (Query(f"sum(increase(blockhouse_dead_letters_total{{{of}}}[1h])) or vector(0)"),),
            bad_above=1,
        ),
    )
