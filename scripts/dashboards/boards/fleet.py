"""All pipelines."""

from __future__ import annotations

from scripts.dashboards.common import BY_PIPELINE, IN_NAMESPACE, NAMESPACE, at_risk, rate
from scripts.dashboards.panels import Board, Listing, Number, Query, Row, Series, Unit

BOARD = Board(
    uid="blockhouse-fleet",
    title="Blockhouse: fleet",
    text="All pipelines: which one is behind, which one needs a person.",
    variables=(NAMESPACE,),
    rows=(
        Row("At risk", at_risk(IN_NAMESPACE)),
        Row(
            "Pipelines",
            (
                Series(
                    "Rows stored",
                    "Rows a second that ClickHouse acknowledged with a quorum.",
                    (
                        Query(
                            rate("blockhouse_rows_total", IN_NAMESPACE, BY_PIPELINE),
                            "{{namespace}}/{{ingest_blockhouse_dev_pipeline}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Oldest message that is not stored",
                    "The oldest of each pipeline's streams. It grows: messages come faster than they are stored.",
                    (
                        Query(
                            f"max by ({BY_PIPELINE}) (blockhouse_lag_seconds{{{IN_NAMESPACE}}})",
                            "{{namespace}}/{{ingest_blockhouse_dev_pipeline}}",
                        ),
                    ),
                    Unit.SECONDS,
                    bad_above=30,
                ),
                Series(
                    "Messages that are not stored",
                    "By the brokers' own word, whatever tasks and replicas do.",
                    (
                        Query(
                            f"sum by ({BY_PIPELINE}) (blockhouse_lag_messages{{{IN_NAMESPACE}}})",
                            "{{namespace}}/{{ingest_blockhouse_dev_pipeline}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Judges",
            (
                Number(
                    "Anomalies",
                    "Commits that can mean lost or doubled rows: `blockhouse verify`, then `blockhouse audit`.",
                    (Query(f"sum(blockhouse_anomalies_current{{{IN_NAMESPACE}}}) or vector(0)"),),
                    bad_above=1,
                ),
                Number(
                    "Clusters the verifier does not see",
                    "An anomaly there would not be noticed.",
                    (Query(f"count(blockhouse_verifier_in_sight{{{IN_NAMESPACE}}} == 0) or vector(0)"),),
                    bad_above=1,
                ),
                Series(
                    "Alerts that fire",
                    "Of the chart's rules: how many series of each. docs/alerts.md has a section for every alert.",
                    (
                        Query(
                            "count by (alertname)"
                            f' (ALERTS{{alertstate="firing",alertname=~"Blockhouse.*",{IN_NAMESPACE}}})',
                            "{{alertname}}",
                        ),
                    ),
                ),
                Listing(
                    "Programs by version",
                    "More than one version: an upgrade is under way, or left a program out.",
                    (Query(f"count by (namespace, version) (blockhouse_build_info{{{IN_NAMESPACE}}})"),),
                ),
            ),
        ),
    ),
)
