"""What the operator counts. Labels are bounded: kinds, outcomes, verbs, codes and reasons, never names of objects."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

NO_ANSWER = "none"
"""The code of a request that the API server did not answer."""


class Figures:
    """Counters and histograms of one operator process in one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.reconcile_seconds = Histogram(
            "blockhouse_operator_reconcile_seconds",
            "Time of a reconcile; `failed` and `crashed` ones are tried again",
            ["kind", "outcome"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.api_requests = Counter(
            "blockhouse_operator_api_requests_total",
            "Requests to the Kubernetes API server by HTTP status code, `none` without an answer",
            ["verb", "code"],
            registry=self.registry,
        )
        self.events = Counter(
            "blockhouse_operator_events_total",
            "Events reported about resources: steps of rollouts, refusals, failures",
            ["kind", "type", "reason"],
            registry=self.registry,
        )
