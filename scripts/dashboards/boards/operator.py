"""The operator itself."""

from __future__ import annotations

from scripts.dashboards.common import IN_NAMESPACE, NAMESPACE, rate
from scripts.dashboards.panels import Board, Number, Query, Row, Series, Unit

BOARD = Board(
    uid="blockhouse-operator",
    title="Blockhouse: operator",
    text="Whether one operator leads, sees changes and gets its work done.",
    variables=(NAMESPACE,),
    rows=(
        Row(
            "Health",
            (
                Number(
                    "Leaders",
                    "Exactly one: docs/reconciling.md.",
                    (Query(f"sum(blockhouse_operator_leader{{{IN_NAMESPACE}}})"),),
                ),
                Number(
                    "Blind operators",
                    "A watch is dead: changes are not seen.",
                    (Query(f"sum(blockhouse_operator_sick{{{IN_NAMESPACE}}})"),),
                    bad_above=1,
                ),
            ),
        ),
        Row(
            "Work",
            (
                Series(
                    "Reconciles",
                    "A second, and those that failed and are tried again.",
                    (
                        Query(rate("blockhouse_operator_reconciles_total", IN_NAMESPACE, "pod"), "{{pod}}"),
                        Query(
                            rate("blockhouse_operator_reconcile_failures_total", IN_NAMESPACE, "pod"), "{{pod}} failed"
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Queue",
                    "Resources that wait or are at work.",
                    (Query(f"blockhouse_operator_queue_length{{{IN_NAMESPACE}}}", "{{pod}}"),),
                ),
            ),
        ),
    ),
)
