"""The operator itself."""

from __future__ import annotations

from scripts.dashboards.common import IN_NAMESPACE, NAMESPACE, rate
from scripts.dashboards.panels import Board, Listing, Number, Query, Row, Series, Unit

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
                Number(
                    "Resources not ready",
                    "Of pipelines, shards and mirrors that are not suspended: `kubectl get ba,csi,km -A`.",
                    (Query(f"count(blockhouse_operator_resource_ready{{{IN_NAMESPACE}}} == 0) or vector(0)"),),
                    bad_above=1,
                ),
                Listing(
                    "Conditions",
                    "How many resources of a kind have which condition, as of the last list.",
                    (
                        Query(
                            "sum by (kind, condition, status) "
                            f"(blockhouse_operator_resource_conditions{{{IN_NAMESPACE}}})"
                        ),
                    ),
                ),
                Listing(
                    "Not as they should be",
                    "Conditions of single resources, without Ready: `kubectl describe` has the reason.",
                    (
                        Query(
                            "max by (kind, namespace, name, condition, status) "
                            f"(blockhouse_operator_resource_condition{{{IN_NAMESPACE}}})"
                        ),
                    ),
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
                    "Shards that are changed",
                    "A replica restarts or is cloned, or a table is changed; `maxParallelShards` limits restarts.",
                    (
                        Query(
                            f"max by (pipeline, change) (blockhouse_operator_rollouts{{{IN_NAMESPACE}}})",
                            "{{pipeline}} {{change}}",
                        ),
                    ),
                ),
                Series(
                    "Queue",
                    "Resources that wait or are at work.",
                    (Query(f"blockhouse_operator_queue_length{{{IN_NAMESPACE}}}", "{{pod}}"),),
                ),
                Series(
                    "Oldest in the queue",
                    "How long the resource that waits longest has been due: grows when the operator does not keep up.",
                    (Query(f"blockhouse_operator_queue_overdue_seconds{{{IN_NAMESPACE}}}", "{{pod}}"),),
                    Unit.SECONDS,
                ),
                Series(
                    "Time of a reconcile, 99 %",
                    "By kind.",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (kind, le) (rate("
                            f"blockhouse_operator_reconcile_seconds_bucket{{{IN_NAMESPACE}}}[$__rate_interval])))",
                            "{{kind}}",
                        ),
                    ),
                    Unit.SECONDS,
                ),
                Series(
                    "Requests to the API server",
                    "By verb and status code; 409 is a write that another one overtook, 429 a server that limits us.",
                    (
                        Query(
                            rate("blockhouse_operator_api_requests_total", IN_NAMESPACE, "verb, code"),
                            "{{verb}} {{code}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Events",
                    "Reported about resources: steps of rollouts, refusals, failures.",
                    (
                        Query(
                            rate("blockhouse_operator_events_total", IN_NAMESPACE, "kind, reason"),
                            "{{kind}} {{reason}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Series(
                    "Age of watches",
                    "Since the API server was last heard; it ends each watch after four minutes.",
                    (Query(f"max by (kind) (blockhouse_operator_watch_age_seconds{{{IN_NAMESPACE}}})", "{{kind}}"),),
                    Unit.SECONDS,
                ),
            ),
        ),
    ),
)
