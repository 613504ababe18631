"""The source of load that the settings choose, opened for one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent
from blockhouse.fleet.load.cluster import LiveNames
from blockhouse.fleet.load.cruise_control import CruiseControlSource
from blockhouse.fleet.load.prometheus import PrometheusSource
from blockhouse.fleet.load.sampled import SampledSource
from blockhouse.fleet.load.settings import LoadSettings
from blockhouse.fleet.load.static import StaticSource
from blockhouse.load.model import LoadSource


@contextmanager
def opened(settings: LoadSettings, kafka: KafkaCluster | None, *, groups: bool = True) -> Iterator[LoadSource]:
    """The source, closed at the end. Raises Permanent when it needs a cluster and none is given."""
    if settings.source == "static":
        assert settings.static is not None
        yield StaticSource(settings.static)
        return
    if kafka is None:
        raise Permanent(
            f"source {settings.source} needs a live cluster: give --bootstrap-server, or --config", reason="NoCluster"
        )
    if settings.source == "sampled":
        with SampledSource(kafka, groups=groups) as source:
            yield source
        return
    with closing(LiveNames(kafka)) as names:
        if settings.source == "prometheus":
            assert settings.prometheus is not None
            yield PrometheusSource(settings.prometheus, names)
        else:
            yield CruiseControlSource(settings.cruise_control, kafka, names)
