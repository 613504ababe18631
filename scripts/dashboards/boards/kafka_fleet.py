"""Reassignments of a Kafka fleet and their throttles."""

from __future__ import annotations

from scripts.dashboards.common import IN_NAMESPACE, NAMESPACE, rate
from scripts.dashboards.panels import Board, Listing, Number, Query, Row, Series, Unit, Variable

_OF = IN_NAMESPACE + ',reassignment=~"$reassignment"'

BOARD = Board(
    uid="blockhouse-kafka-fleet",
    title="Blockhouse: Kafka fleet",
    text="Reassignments under way: what is left, at which rate each broker copies, and why.",
    variables=(NAMESPACE, Variable("reassignment", "reassignment", "blockhouse_reassignment_remaining_bytes")),
    rows=(
        Row(
            "Moves",
            (
                Series(
                    "Left to copy",
                    "Bytes of each reassignment.",
                    (
                        Query(
                            f"blockhouse_reassignment_remaining_bytes{{{_OF}}}",
                            "{{reassignment}}",
                        ),
                    ),
                    Unit.BYTES,
                ),
                Series(
                    "Until it is done",
                    "At the rate of the last intervals; nothing is drawn for a move that does not end.",
                    (
                        Query(
                            f"blockhouse_reassignment_eta_seconds{{{_OF}}} < +Inf",
                            "{{reassignment}}",
                        ),
                    ),
                    Unit.SECONDS,
                ),
                Number(
                    "Brokers at which a move does not end",
                    "Producers write faster than the throttle lets followers copy: docs/throttle.md.",
                    (
                        Query(
                            f"sum(blockhouse_throttle_stalled{{{_OF}}}) or vector(0)",
                        ),
                    ),
                    bad_above=1,
                ),
            ),
        ),
        Row(
            "Brokers",
            tuple(
                Series(
                    title,
                    text,
                    tuple(
                        Query(
                            f"blockhouse_throttle_{what}_bytes{{{_OF}}}",
                            f"{{{{broker}}}} {{{{role}}}}{legend}",
                        )
                        for what, legend in figures
                    ),
                    Unit.BYTES_PER_SECOND,
                )
                for title, text, figures in (
                    (
                        "Rate",
                        "In force or decided, by broker and role, and the least at which its moves end.",
                        (("rate", ""), ("floor", ", least")),
                    ),
                    ("Copied", "What was copied lately.", (("moved", ""),)),
                    (
                        "Used by clients",
                        "What is left for them, of what the network carries.",
                        (("other", ""), ("capacity", ", capacity")),
                    ),
                )
            ),
        ),
        Row(
            "Measurement",
            (
                Series(
                    "Loads that were missing, stale or absurd",
                    "By broker and reason; the rate then stays or falls to the least.",
                    (
                        Query(
                            rate("blockhouse_throttle_failures_total", IN_NAMESPACE, "reassignment, broker, reason"),
                            "{{reassignment}} {{broker}} {{reason}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Writes to Kafka",
                    "Rates and lists of throttled replicas, by result.",
                    (
                        Query(
                            rate("blockhouse_throttle_writes_total", IN_NAMESPACE, "reassignment, what, result"),
                            "{{reassignment}} {{what}} {{result}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Listing(
                    "Fixed rates",
                    "Set by a person, in bytes a second, until they are cleared.",
                    (Query(f"blockhouse_throttle_override{{{IN_NAMESPACE}}}"),),
                    Unit.BYTES_PER_SECOND,
                ),
            ),
        ),
    ),
)
