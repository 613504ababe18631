"""The verifier."""

from __future__ import annotations

from scripts.dashboards.common import NAMESPACE, OF_PIPELINE, PIPELINE, rate
from scripts.dashboards.panels import Board, Number, Query, Row, Series, Unit

BOARD = Board(
    uid="blockhouse-verifier",
    title="Blockhouse: verifier",
    text="Whether the history of commits proves that nothing is lost or doubled, and whether all of it was seen.",
    variables=(NAMESPACE, PIPELINE),
    rows=(
        Row(
            "Verdict",
            (
                Number(
                    "Anomalies that count",
                    "`blockhouse verify` lists them; docs/verifier.md names the kinds.",
                    (Query(f"sum(blockhouse_anomalies_current{{{OF_PIPELINE}}}) or vector(0)"),),
                    bad_above=1,
                ),
                Number(
                    "Clusters in sight",
                    "Read to their end, and answering.",
                    (Query(f"sum(blockhouse_verifier_in_sight{{{OF_PIPELINE}}})"),),
                ),
                Number(
                    "Streams under watch",
                    "All streams of the pipeline are to be here.",
                    (Query(f"sum(blockhouse_verifier_streams{{{OF_PIPELINE}}})"),),
                ),
            ),
        ),
        Row(
            "What it reads",
            (
                Series(
                    "Commits checked",
                    "By cluster.",
                    (Query(rate("blockhouse_verifier_commits_total", OF_PIPELINE, "cluster"), "{{cluster}}"),),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Anomalies found",
                    "By kind, those that were settled later, too.",
                    (Query(rate("blockhouse_anomalies_total", OF_PIPELINE, "cluster, kind"), "{{cluster}} {{kind}}"),),
                    Unit.PER_SECOND,
                ),
                Series(
                    "What it could not judge",
                    "Commits compacted before they were read, holes too long to read, records that it cannot"
                    " parse or of another version, and offsets that were removed.",
                    (
                        Query(
                            rate("blockhouse_verifier_unseen_commits_total", OF_PIPELINE, "cluster"),
                            "{{cluster}} unseen",
                        ),
                        Query(
                            rate("blockhouse_verifier_unchecked_holes_total", OF_PIPELINE, "cluster"),
                            "{{cluster}} unchecked holes",
                        ),
                        Query(
                            rate("blockhouse_verifier_damaged_records_total", OF_PIPELINE, "cluster"),
                            "{{cluster}} damaged",
                        ),
                        Query(
                            rate("blockhouse_verifier_unknown_records_total", OF_PIPELINE, "cluster"),
                            "{{cluster}} of unknown version",
                        ),
                        Query(
                            rate("blockhouse_verifier_tombstones_total", OF_PIPELINE, "cluster"), "{{cluster}} removed"
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
            ),
        ),
    ),
)
