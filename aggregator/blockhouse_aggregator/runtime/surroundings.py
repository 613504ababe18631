"""What every owner of a stream shares with the others of its aggregator. Values and ports, no behaviour."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.runtime.catalog import Catalog
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.ports import Outside
from blockhouse_aggregator.runtime.storing import Storing


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every owner shares."""

    config: AggregatorConfig
    outside: Outside
    catalog: Catalog
    storing: Storing
    figures: Figures
    now_ms: Callable[[], int]
    fault: Callable[[str, str], None]
    random: random.Random
    room: MetadataRoom
    streams: Callable[[], int]
    faults: Faults = field(default_factory=Faults)


SPARE_UNITS = 64
"""Units a round leaves free: whoever takes over commits the same entries under a name that may be longer."""


@dataclass(slots=True)
class MetadataRoom:
    """UTF-16 units the metadata may have: as configured, or fewer once a broker has refused that much."""

    units: int


@dataclass(slots=True)
class Retry:
    """When a table's replay may be tried again."""

    tries: int = 0
    at: float = 0.0
