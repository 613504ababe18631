"""Series of streams and tables: there while they are owned or lag, and gone afterwards."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from blockhouse.contract.aggregator import Standing
from blockhouse.streams import StreamId
from blockhouse_aggregator.runtime.lag_figures import LagFigures, Measured, TableMeasured

STREAM = StreamId("a", "events", 3)
NOTHING = Measured(*(None,) * 9)
STILL = Standing(reason="TaskSilent", text="t", since_ms=5000)


def lines(registry: CollectorRegistry) -> set[str]:
    """Of streams and tables: those with labels."""
    return {line for line in generate_latest(registry).decode().splitlines() if "{" in line and line[0] != "#"}


def test_a_series_is_there_while_its_stream_is_owned_and_what_is_not_known_has_none() -> None:
    registry = CollectorRegistry()
    figures = LagFigures(registry)
    of = '{cluster="a",partition="3",topic="events"}'

    figures.show({STREAM: NOTHING}, {})
    assert lines(registry) == {f"blockhouse_stream_owned{of} 1.0"}

    figures.show({STREAM: NOTHING._replace(messages=7, seconds=1.5)}, {})
    assert lines(registry) == {
        f"blockhouse_stream_owned{of} 1.0",
        f"blockhouse_lag_messages{of} 7.0",
        f"blockhouse_lag_seconds{of} 1.5",
    }

    figures.show({}, {})
    assert lines(registry) == set()


def test_what_stands_still_has_its_reason_and_since_when_and_only_while_it_does() -> None:
    registry = CollectorRegistry()
    figures = LagFigures(registry)
    name = "blockhouse_stream_standing_since_timestamp_seconds"

    figures.show({STREAM: NOTHING._replace(standing=STILL)}, {})
    assert f'{name}{{cluster="a",partition="3",reason="TaskSilent",topic="events"}} 5.0' in lines(registry)
    figures.show({STREAM: NOTHING._replace(standing=STILL.model_copy(update={"reason": "NoTask"}))}, {})
    assert [line for line in lines(registry) if "TaskSilent" in line] == []


def test_a_table_has_series_while_it_lags() -> None:
    registry = CollectorRegistry()
    figures = LagFigures(registry)

    figures.show({}, {("d.t", "UnknownTable"): TableMeasured(pending=4, distance=9)})
    assert lines(registry) == {
        'blockhouse_table_pending_messages{reason="UnknownTable",table="d.t"} 4.0',
        'blockhouse_table_cursor_distance{reason="UnknownTable",table="d.t"} 9.0',
    }
    figures.show({}, {})
    assert lines(registry) == set()


def test_whether_the_replica_takes_rows_is_shown_with_and_without_streams() -> None:
    registry = CollectorRegistry()
    figures = LagFigures(registry)

    figures.show({STREAM: NOTHING}, {}, unfit=True)
    assert registry.get_sample_value("blockhouse_replica_unfit") == 1
    figures.show({}, {})
    assert registry.get_sample_value("blockhouse_replica_unfit") == 0
