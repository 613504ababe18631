"""The metrics of lag and of what stands still: of streams and tables only while a stream is owned here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge

from blockhouse.contract.aggregator import Standing
from blockhouse.streams import StreamId
from blockhouse_aggregator.runtime.series import STREAM, labels_of, show_only


class Measured(NamedTuple):
    """Of one owned stream; None where it is not known, which has no series."""

    position: int | None
    stored: int | None
    high: int | None
    stable: int | None
    messages: int | None
    seconds: float | None
    lagging: int | None
    in_flight: int | None
    standing: Standing | None


class TableMeasured(NamedTuple):
    """Of one table that lags for one reason: messages pending in all streams, the largest distance in any."""

    pending: int
    distance: int


class LagFigures:
    """Gauges of streams that are owned and of tables that lag; a series ends when its stream or reason does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *more: str) -> Gauge:
            return Gauge(f"blockhouse_{name}", text, [*STREAM, *more], registry=registry)

        self._owned = gauge("stream_owned", "1 while this aggregator owns the stream")
        self._of = {
            "position": gauge("stream_position", "Next offset that the stream's owner reads"),
            "stored": gauge("stream_stored_offset", "Everything below this offset is stored"),
            "high": gauge("stream_high_watermark", "End of the log, as the broker itself answers"),
            "stable": gauge("stream_last_stable_offset", "End of what may be read: below every open transaction"),
            "messages": gauge("lag_messages", "Messages up to the high watermark that are not stored"),
            "seconds": gauge("lag_seconds", "Age of the oldest message that is not stored"),
            "lagging": gauge("lagging_tables", "Tables behind the position of the stream"),
            "in_flight": gauge("in_flight_blocks", "Blocks whose intent is committed and that are not acknowledged"),
        }
        self._standing = gauge(
            "stream_standing_since_timestamp_seconds",
            "Unix time since which the stream stands still although messages wait",
            "reason",
        )
        self._pending = Gauge(
            "blockhouse_table_pending_messages",
            "Messages of a table that lags behind its streams' positions",
            ["table", "reason"],
            registry=registry,
        )
        self._distance = Gauge(
            "blockhouse_table_cursor_distance",
            "Offsets from a lagging table's cursor to the end of the log, the largest of its streams",
            ["table", "reason"],
            registry=registry,
        )
        self._unfit = Gauge(
            "blockhouse_replica_unfit",
            "1 while the local ClickHouse replica takes no rows: silent, unreachable or read-only",
            registry=registry,
        )

    def show(
        self,
        streams: Mapping[StreamId, Measured],
        tables: Mapping[tuple[str, str], TableMeasured],
        *,
        unfit: bool = False,
    ) -> None:
        """What is true now; whatever is not among it has no series any more. `unfit`: the replica takes no rows."""
        self._unfit.set(unfit)
        named = {labels_of(stream): measured for stream, measured in streams.items()}
        show_only(self._owned, dict.fromkeys(named, 1.0))
        for name, gauge in self._of.items():
            values = {labels: getattr(measured, name) for labels, measured in named.items()}
            show_only(gauge, {labels: value for labels, value in values.items() if value is not None})
        still = {(*labels, m.standing.reason): m.standing.since_ms / 1000 for labels, m in named.items() if m.standing}
        show_only(self._standing, still)
        show_only(self._pending, {labels: float(found.pending) for labels, found in tables.items()})
        show_only(self._distance, {labels: float(found.distance) for labels, found in tables.items()})
