"""What makes a table unsafe to load, although it can be loaded: said at start and whenever the table changes.

A hazard never stops a table by itself; `provenance: require` turns missing provenance columns into a reason to hold it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.schema.model import PROVENANCE_COLUMNS
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.runtime.catalog import Known
from blockhouse_aggregator.runtime.figures import Figures

log = structlog.get_logger(__name__)
LEAST_OUTAGE = 60.0
"""Seconds of full production which the deduplication window should hold at least: a restart with a session time-out."""
PROVENANCE_MISSING = "ProvenanceMissing"


@dataclass(frozen=True, slots=True)
class Hazard:
    """`reason` is CamelCase and has a row in `docs/protocol.md`; `text` says what to do."""

    reason: str
    text: str


def hazards(table: ServerTable, config: AggregatorConfig, partitions: int) -> tuple[Hazard, ...]:
    """The hazards of a table that is loaded from `partitions` partitions of every Kafka cluster."""
    found: list[Hazard] = []
    missing = [name for name in PROVENANCE_COLUMNS[:3] if name not in table.provenance]
    if missing:
        text = f"no {', '.join(missing)}: two genuine blocks of equal rows look like one, old blocks cannot be decided"
        found.append(Hazard(PROVENANCE_MISSING, text))
    if not table.replicated:
        found.append(
            Hazard("NotReplicated", f"engine {table.engine} deduplicates nothing: provenance decides each replay")
        )
    elif (held := window_seconds(table, config, partitions)) < (least := least_seconds(config)):
        text = (
            f"the deduplication window holds {held:.0f} s of blocks from all writers of the shard, not {least:.0f}:"
            " raise replicated_deduplication_window and replicated_deduplication_window_seconds"
        )
        found.append(Hazard("DeduplicationUnsafe", text))
    if table.materialized_views:
        text = f"{', '.join(table.materialized_views)} would lose rows whose push fails after the block is stored"
        found.append(Hazard("MaterializedViews", text))
    return tuple(found)


def window_seconds(table: ServerTable, config: AggregatorConfig, partitions: int) -> float:
    """How long a block stays in the table's deduplication window when every stream writes a block per `maxAge`."""
    override = config.blocks.tables.get(table.full_name)
    age = override.max_age if override else config.blocks.max_age
    per_second = max(1, partitions) * len(config.kafka.clusters) / age
    return min(table.deduplication_window / per_second, float(table.deduplication_window_seconds))


def least_seconds(config: AggregatorConfig) -> float:
    """How long a window should hold: an insert whose block was in the newer half of it when it was decided finds it
    there as long as its grant lives, so two of these lifetimes."""
    return max(LEAST_OUTAGE, 2 * config.quorum.insert_lifetime)


@dataclass(slots=True)
class HazardWatch:
    """Tells of hazards when they appear and when they are gone, in the log and as a metric."""

    config: AggregatorConfig
    figures: Figures
    partitions: int = 1
    _told: set[tuple[str, str]] = field(default_factory=set)

    def of(self, known: Known) -> tuple[Hazard, ...]:
        return hazards(known.server, self.config, self.partitions) if known.server is not None else ()

    def look(self, tables: Iterable[Known]) -> None:
        found = {(known.history.name, hazard.reason): hazard.text for known in tables for hazard in self.of(known)}
        for (table, reason), text in found.items():
            if (table, reason) not in self._told:
                log.warning("table.hazard", table=table, reason=reason, message=text)
                self.figures.hazards.labels(table, reason).set(1)
        for table, reason in self._told - found.keys():
            log.info("table.hazard_gone", table=table, reason=reason)
            self.figures.hazards.labels(table, reason).set(0)
        self._told = set(found)
