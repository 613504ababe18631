"""Which source of load is used and how it is reached: the `load` section, validated at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from blockhouse.config.base import Settings
from blockhouse.config.endpoints import Tls
from blockhouse.config.secrets import SecretRef
from blockhouse.config.units import Duration
from blockhouse.throttle.units import EXAMPLES, rate_of


def _rate(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} has no unit: give for example {EXAMPLES}")
    return float(rate_of(value))


ByteRate = Annotated[float, BeforeValidator(_rate)]
"""Bytes a second, always with a unit: a bare number is refused, because some take it for bytes and others for MB."""


class Queries(Settings):
    """PromQL by what it gives, `$window` filled in. An empty one is not asked; unset ones come from the preset.

    Results carry the labels `pod` or `instance` where they are of a broker, `topic`, and `partition`.
    """

    bytes_in: str | None = None
    bytes_out: str | None = None
    replication_in: str | None = None
    replication_out: str | None = None
    moved_in: str | None = None
    moved_out: str | None = None
    topic_bytes: str | None = None
    topic_messages: str | None = None
    partition_bytes: str | None = None
    partition_messages: str | None = None
    measured_at: str | None = None


class PrometheusSettings(Settings):
    """A Prometheus server. `window` and `timeout` are in seconds; ValidationError names what cannot be used."""

    url: str = Field(pattern=r"^https?://\S+$")
    preset: Literal["strimzi", "cruise-control", "grafana-cloud"] = "strimzi"
    queries: Queries = Queries()
    window: Duration = Field(default=120.0, ge=10)
    timeout: Duration = Field(default=10.0, gt=0, le=120)
    bearer_token: SecretRef | None = None
    tls: Tls | None = None
    broker_from_pod: str = r"-(\d+)$"
    """The first group of this expression, found in the label `pod`, is the broker's id."""


class CruiseControlSettings(Settings):
    """Samples that Cruise Control keeps in a topic; `lookback` is in seconds."""

    topic: str = "__KafkaCruiseControlPartitionMetricSamples"
    """This one, or `__CruiseControlMetrics`: the format follows from it unless `format` is given."""
    format: Literal["partitionSamples", "metrics"] | None = None
    lookback: Duration = Field(default=600.0, ge=60)
    """How old a sample may be. Cruise Control takes one every two minutes, and none during a rebalance."""


class StaticSettings(Settings):
    """A file with rates: YAML as `blockhouse load show --file` reads it."""

    file: Path


class LoadSettings(Settings):
    """The section of the source that is chosen must be there; `sampled` needs none."""

    source: Literal["sampled", "prometheus", "cruiseControl", "static"] = "sampled"
    prometheus: PrometheusSettings | None = None
    cruise_control: CruiseControlSettings = CruiseControlSettings()
    static: StaticSettings | None = None

    @model_validator(mode="after")
    def _complete(self) -> LoadSettings:
        if self.source == "prometheus" and self.prometheus is None:
            raise ValueError("source prometheus needs the section 'prometheus' with at least its 'url'")
        if self.source == "static" and self.static is None:
            raise ValueError("source static needs the section 'static' with its 'file'")
        return self
