"""Mirrors between Kafka clusters: how far behind, how even their tasks, and what is stopped."""

from __future__ import annotations

from scripts.dashboards.common import IN_NAMESPACE, NAMESPACE, OWNER, rate
from scripts.dashboards.panels import Board, Number, Query, Row, Series, Unit

_BY = "pod, instance"


def _each(metric: str, which: str = "") -> Query:
    return Query(f"sum by ({_BY}) (blockhouse_mirror_{metric}{{{IN_NAMESPACE}}})", OWNER + which)


def _rate(metric: str) -> Query:
    return Query(rate(f"blockhouse_mirror_{metric}_total", IN_NAMESPACE, _BY), OWNER)


BOARD = Board(
    uid="blockhouse-mirror",
    title="Blockhouse: mirror",
    text="Whether records are mirrored in time, how evenly tasks are loaded, and which partitions need a person.",
    variables=(NAMESPACE,),
    rows=(
        Row(
            "At risk",
            (
                Number(
                    "Partitions stopped",
                    "Not mirrored until a person decides: `blockhouse mirror status` names them and why.",
                    (Query(f"sum(blockhouse_mirror_stopped{{{IN_NAMESPACE}}}) or vector(0)"),),
                    bad_above=1,
                ),
                Number(
                    "Partitions no assignment helps",
                    "One of them alone is more than a task should have: `blockhouse mirror explain`.",
                    (Query(f"sum(blockhouse_mirror_offending_partitions{{{IN_NAMESPACE}}}) or vector(0)"),),
                    bad_above=1,
                ),
                Number(
                    "Records lost to gaps",
                    "The source deleted them before they were mirrored, and `onGap` let the mirror pass.",
                    (Query(f"sum(blockhouse_mirror_skipped_total{{{IN_NAMESPACE}}}) or vector(0)"),),
                    bad_above=1,
                ),
                Number(
                    "Dead letters",
                    "Records that the target refused and that `onRefused` kept in a topic of their own.",
                    (Query(f"sum(blockhouse_mirror_dead_letters_total{{{IN_NAMESPACE}}}) or vector(0)"),),
                    bad_above=1,
                ),
            ),
        ),
        Row(
            "Flow",
            (
                Series("Bytes", "Mirrored a second.", (_rate("bytes"),), Unit.BYTES_PER_SECOND),
                Series("Records", "Mirrored a second.", (_rate("records"),), Unit.PER_SECOND),
                Series(
                    "Left out",
                    "Records a second that came from the target: two mirrors that face each other leave them out.",
                    (_rate("left_out"),),
                    Unit.PER_SECOND,
                ),
                Series("Lag", "Of the latest partition that is not stopped.", (_each("lag_seconds"),), Unit.SECONDS),
                Series("Behind", "Offsets between positions and log ends.", (_each("lag_records"),)),
                Series(
                    "Latency",
                    "Mean time from a record's append at the source to its acknowledgement by the target.",
                    (
                        Query(
                            f"{rate('blockhouse_mirror_latency_seconds_total', IN_NAMESPACE, _BY)} / "
                            f"{rate('blockhouse_mirror_acknowledged_total', IN_NAMESPACE, _BY)}",
                            OWNER,
                        ),
                    ),
                    Unit.SECONDS,
                ),
            ),
        ),
        Row(
            "Assignment",
            (
                Series("Tasks", "Assigned, and those that run.", (_each("tasks"), _each("tasks_running", " running"))),
                Series(
                    "Partitions",
                    "Of the source, and those that a task has.",
                    (_each("partitions"), _each("partitions_held", " held")),
                ),
                Series(
                    "Heaviest task against the mean",
                    "1 is even; above 1.1 a rebalance is due unless one partition is larger than a task should be.",
                    (_each("assignment_ratio"),),
                ),
                Series(
                    "Rebalances",
                    "By cause, in an hour.",
                    (
                        Query(
                            f"sum by (cause) (increase(blockhouse_mirror_rebalances_total{{{IN_NAMESPACE}}}[1h]))",
                            "{{cause}}",
                        ),
                    ),
                ),
                Series("Partitions moved", "By rebalances, a second.", (_rate("moved_partitions"),), Unit.PER_SECOND),
                Series(
                    "Age of the load",
                    "Since the newest sample that the assignment is based on.",
                    (_each("load_age_seconds"),),
                    Unit.SECONDS,
                ),
            ),
        ),
    ),
)
