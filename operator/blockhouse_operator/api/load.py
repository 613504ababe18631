"""Where the load of a Kafka cluster is read, as users of a KafkaReassignment write it."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from blockhouse.fleet.load.settings import Queries
from blockhouse_operator.api.base import Between, Duration, Part, Rule
from blockhouse_operator.api.references import ConfigMapKeyRef, PasswordSecretRef, Tls

TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=249)]


def _known(queries: dict[str, str]) -> dict[str, str]:
    """The queries, if each is one that is asked. Raises ValueError."""
    known = {field.alias or name for name, field in Queries.model_fields.items()}
    strangers = sorted(queries.keys() - known)
    if strangers:
        raise ValueError(f"{', '.join(strangers)}: not among {', '.join(sorted(known))}")
    return queries


def _with_group(expression: str) -> str:
    """The expression, if it can be used. Raises ValueError."""
    try:
        groups = re.compile(expression).groups
    except re.error as error:
        raise ValueError(f"{expression}: {error}") from None
    if not groups:
        raise ValueError(f"{expression}: has no group for the broker's id")
    return expression


class PrometheusLoad(Part):
    """A Prometheus server that has the brokers' metrics."""

    url: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=1024)]
    """Its address."""
    preset: Literal["strimzi", "cruise-control", "grafana-cloud"] = "strimzi"
    """Names of the metrics, by who exports them."""
    queries: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=20), AfterValidator(_known)
    ] = {}
    """PromQL instead of the preset's, by what it gives: `bytesIn`, `bytesOut`, `topicBytes` and so on."""
    window: Annotated[Duration, Between("10s", "1h")] = "120s"
    """Window of rates, which a query has as `$window`."""
    timeout: Annotated[Duration, Between("1s", "120s")] = "10s"
    """Longest wait for an answer."""
    bearer_token_secret_ref: PasswordSecretRef | None = None
    """Where a bearer token is."""
    tls: Tls | None = None
    """TLS, for an address that begins with https."""
    broker_from_pod: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_with_group)] = r"-(\d+)$"
    """The first group of this expression, found in the label `pod`, is the broker's id."""


class CruiseControlLoad(Part):
    """Samples that Cruise Control keeps in a topic of the cluster."""

    topic: TopicName = "__KafkaCruiseControlPartitionMetricSamples"
    """This topic, or `__CruiseControlMetrics`."""
    lookback: Annotated[Duration, Between("60s", "1h")] = "600s"
    """How old a sample may be."""


class StaticLoad(Part):
    """Rates that are given, as in the file of `blockhouse load show --file`."""

    config_map_key_ref: ConfigMapKeyRef
    """Where they are."""


class ThrottleLoad(Part):
    """Where the load of brokers is read."""

    rules = (
        Rule(
            "!has(self.source) || self.source != 'Prometheus' || has(self.prometheus)",
            "source Prometheus needs prometheus with its url",
        ),
        Rule(
            "!has(self.source) || self.source != 'Static' || has(self.static)",
            "source Static needs static with its configMapKeyRef",
        ),
    )

    source: Literal["Sampled", "Prometheus", "CruiseControl", "Static"] = "Sampled"
    """Sampled needs nothing but the cluster itself."""
    prometheus: PrometheusLoad | None = None
    """For source Prometheus."""
    cruise_control: CruiseControlLoad = CruiseControlLoad()
    """For source CruiseControl."""
    static: StaticLoad | None = None
    """For source Static."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.source == "Prometheus" and self.prometheus is None:
            raise ValueError("source Prometheus needs prometheus with its url")
        if self.source == "Static" and self.static is None:
            raise ValueError("source Static needs static with its configMapKeyRef")
        return self
