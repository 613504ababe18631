"""The throttle of a KafkaReassignment's spec as settings of `blockhouse.throttle`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from blockhouse.config.endpoints import Tls
from blockhouse.config.secrets import SecretRef
from blockhouse.config.units import seconds
from blockhouse.fleet.load.settings import (
    CruiseControlSettings,
    LoadSettings,
    PrometheusSettings,
    Queries,
    StaticSettings,
)
from blockhouse.throttle.model import Capacity, Override, Overrides, Settings
from blockhouse.throttle.units import rate_of
from blockhouse_operator.api.load import ThrottleLoad
from blockhouse_operator.api.reassignment import ReassignmentThrottle, ThrottleCapacity, ThrottleOverride

EVERYWHERE = "everywhere"
_SOURCES: Mapping[str, Literal["sampled", "prometheus", "cruiseControl", "static"]] = {
    "Sampled": "sampled",
    "Prometheus": "prometheus",
    "CruiseControl": "cruiseControl",
    "Static": "static",
}


def settings_of(throttle: ReassignmentThrottle, types: Mapping[int, str] | None = None) -> Settings:
    """The settings of the throttler, with the instance type of each broker that is known. The patterns of the CRD
    leave no rate without a unit."""
    return Settings(
        capacity=_capacity(throttle.capacity, types or {}),
        min_rate=float(rate_of(throttle.min_rate)),
        max_rate=float(rate_of(throttle.max_rate)) if throttle.max_rate else None,
        max_outbound=throttle.max_outbound_percent / 100,
        max_inbound=throttle.max_inbound_percent / 100,
        change_threshold=throttle.change_threshold_percent / 100,
        failure_threshold=throttle.failure_threshold,
        window=seconds(throttle.window),
        foreign=throttle.foreign,
    )


def _capacity(capacity: ThrottleCapacity, types: Mapping[int, str]) -> Capacity:
    by_type = {name: float(rate_of(rate)) for name, rate in capacity.by_instance_type.items()}
    of_types = {broker: by_type[name] for broker, name in types.items() if name in by_type}
    named = {int(id): float(rate_of(rate)) for id, rate in capacity.by_broker.items()}
    return Capacity(rate_of(capacity.default) if capacity.default else None, of_types | named)


def overrides_of(throttle: ReassignmentThrottle, ended: Collection[str] = ()) -> Overrides:
    """The fixed rates of the spec, in bytes/s, without those that ended with a plan."""
    given = throttle.overrides
    everywhere = given.everywhere
    if everywhere is not None and scope_of(EVERYWHERE, everywhere) in ended:
        everywhere = None
    return Overrides(
        _override(everywhere) if everywhere is not None else None,
        {int(id): _override(found) for id, found in given.brokers.items() if scope_of(id, found) not in ended},
    )


def ended_overrides(throttle: ReassignmentThrottle, before: Collection[str], *, completed: bool) -> tuple[str, ...]:
    """The overrides that have ended: with a completed plan all that end with one; else those that had, as long as the
    spec has them unchanged."""
    given = dict(throttle.overrides.brokers)
    if throttle.overrides.everywhere is not None:
        given[EVERYWHERE] = throttle.overrides.everywhere
    ending = sorted(scope_of(scope, found) for scope, found in given.items() if found.auto_remove)
    return tuple(scope for scope in ending if completed or scope in before)


def scope_of(scope: str, override: ThrottleOverride) -> str:
    """How the status names an override: another rate is another override."""
    return f"{scope} {override.rate}"


def _override(given: ThrottleOverride) -> Override:
    until = datetime.fromisoformat(given.expires_at).timestamp() if given.expires_at else None
    return Override(rate_of(given.rate), given.auto_remove, until)


def load_settings(
    load: ThrottleLoad, *, bearer_token: Path | None, tls: Tls | None, static: Path | None
) -> LoadSettings:
    """The settings of the source, with its Secrets and ConfigMap as files."""
    prometheus = load.prometheus
    return LoadSettings(
        source=_SOURCES[load.source],
        prometheus=PrometheusSettings(
            url=prometheus.url,
            preset=prometheus.preset,
            queries=Queries.model_validate(prometheus.queries),
            window=seconds(prometheus.window),
            timeout=seconds(prometheus.timeout),
            bearer_token=SecretRef(file=bearer_token) if bearer_token else None,
            tls=tls,
            broker_from_pod=prometheus.broker_from_pod,
        )
        if prometheus is not None
        else None,
        cruise_control=CruiseControlSettings(
            topic=load.cruise_control.topic, lookback=seconds(load.cruise_control.lookback)
        ),
        static=StaticSettings(file=static) if static else None,
    )
