"""What makes a table unsafe to load, although it can be loaded: reported at start and whenever the table changes.

A hazard never stops a table by itself; `provenance: require` turns missing provenance columns into a reason to hold it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.schema.expressions import not_proven
from blockhouse.schema.model import PROVENANCE_COLUMNS, TOPIC_COLUMN
from blockhouse_aggregator.clickhouse.tables import By, ServerTable
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.tables.catalog import Known

log = structlog.get_logger(__name__)
LEAST_OUTAGE = 60.0
"""Seconds of full production which the deduplication window should hold at least: a restart with a session time-out."""
PROVENANCE_MISSING = "ProvenanceMissing"
TOPIC_NOT_NAMED = "TopicNotNamed"


@dataclass(frozen=True, slots=True)
class Hazard:
    """`reason` is CamelCase and has a row in `docs/protocol.md`; `text` is what to do."""

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
    elif (window := window_seconds(table, config, partitions)) < (least := least_seconds(config)):
        text = (
            f"the deduplication window holds {window:.0f} s of blocks from all writers of the shard, not {least:.0f}:"
            " raise replicated_deduplication_window and replicated_deduplication_window_seconds"
        )
        found.append(Hazard("DeduplicationUnsafe", text))
    if table.identity.by is By.NOTHING:
        text = (
            "not every replica of the shard is known to have deduplication tokens, or to have none: provenance decides"
            " each replay; bring all its servers and aggregators to one version"
        )
        found.append(Hazard("MixedServers", text))
    if table.merges_rows:
        text = (
            f"engine {table.engine} makes one row of several: provenance decides nothing, and a replay that has left"
            " the deduplication window is blocked; load a ReplicatedMergeTree and merge behind it"
        )
        found.append(Hazard("MergingEngine", text))
    if table.identity.by is By.CONTENT and (looked_up := _looked_up(table)):
        found.append(Hazard("MaterializedLookup", looked_up))
    if table.materialized_views:
        found.append(Hazard("MaterializedViews", _of_views(table)))
    if TOPIC_COLUMN not in table.provenance and not missing:
        text = (
            f"no column {TOPIC_COLUMN}: once its topic was created again, or another pipeline loads the table, old"
            " blocks cannot be decided; it is added when every aggregator of the shard knows it (docs/clickhouse.md)"
        )
        found.append(Hazard(TOPIC_NOT_NAMED, text))
    return tuple(found)


def _looked_up(table: ServerTable) -> str:
    names = [f"{column.name} calls {name}" for column in table.columns if (name := not_proven(column))]
    if not names:
        return ""
    return f"{', '.join(names)}: the same block may get other bytes later, so that provenance decides each replay"


def _of_views(table: ServerTable) -> str:
    views = ", ".join(table.materialized_views)
    if table.identity.by is By.TOKEN:
        return f"{views}: rows of a replayed block are added again unless the view stores them in a replicated table"
    return f"{views} would lose rows whose push fails after the block is stored"


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
    """Reports hazards when they appear and when they are gone, in the log and as a metric."""

    config: AggregatorConfig
    figures: Figures
    partitions: int = 1
    _reported: set[tuple[str, str]] = field(default_factory=set)

    def topic_has(self, partitions: int) -> None:
        """A cluster's topic has so many partitions: the largest number counts. Caller: who has asked the cluster."""
        self.partitions = max(self.partitions, partitions)

    def of(self, known: Known) -> tuple[Hazard, ...]:
        """The hazards of a table as its server described it last; none of one that was never described."""
        return hazards(known.server, self.config, self.partitions) if known.server is not None else ()

    def look(self, tables: Iterable[Known]) -> None:
        """Log what appeared and what is gone since the last call, and set the metric."""
        found = {(known.history.name, hazard.reason): hazard.text for known in tables for hazard in self.of(known)}
        for (table, reason), text in found.items():
            if (table, reason) not in self._reported:
                log.warning("table.hazard", table=table, reason=reason, message=text)
                self.figures.hazards.labels(table, reason).set(1)
        for table, reason in self._reported - found.keys():
            log.info("table.hazard_gone", table=table, reason=reason)
            self.figures.hazards.labels(table, reason).set(0)
        self._reported = set(found)
