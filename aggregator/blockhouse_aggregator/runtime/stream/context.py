"""What every owner of a stream shares with the others of its aggregator. Values and ports, no behaviour."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.ports import Ports
from blockhouse_aggregator.runtime.stream.defects import Defects
from blockhouse_aggregator.runtime.stream.ownership_history import OwnershipHistory
from blockhouse_aggregator.runtime.stream.storing import Storing
from blockhouse_aggregator.runtime.tables.catalog import Catalog


@dataclass(frozen=True, slots=True)
class StreamContext:
    """What every owner shares."""

    config: AggregatorConfig
    ports: Ports
    catalog: Catalog
    storing: Storing
    figures: Figures
    now_ms: Callable[[], int]
    fault: Callable[[str, str], None]
    random: random.Random
    room: MetadataRoom
    streams: Callable[[], int]
    defects: Defects
    history: OwnershipHistory
    faults: Faults = field(default_factory=Faults)


@dataclass(slots=True)
class MetadataRoom:
    """UTF-16 units the metadata may have: as configured, or fewer once a broker has refused that much."""

    units: int

    def refused(self, units: int) -> int:
        """A broker has refused metadata of so many units; returns the room there is now. Caller: any stream's owner."""
        self.units = min(self.units, units * 3 // 4)
        return self.units
