"""What people read about a block whose insert failed: the code where ClickHouse gave one, and plain words otherwise."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.gate.messages import BlockKey, Result
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.stream.current_task import CurrentTask
from blockhouse_aggregator.runtime.stream.outcomes import TryAgain
from blockhouse_aggregator.runtime.stream.reporting import StreamReport

TABLE = "d.t"


@pytest.fixture
def report() -> StreamReport:
    catalog: Any = None  # neither is asked
    history: Any = None
    return StreamReport(StreamId("a", "events", 0), Figures(), catalog, history, lambda: 0)


def test_the_code_of_a_refusal_is_before_its_text(report: StreamReport) -> None:
    key = BlockKey(table=TABLE, begin=0, end=1)
    answer = Result(block=key, outcome="retryable", attempts=1, elapsed=0.1, code=286)
    report.failed(TABLE, TryAgain("the quorum of another insert is not met", result=answer))

    assert report.troubles == {TABLE: "286: the quorum of another insert is not met"}


def test_a_code_that_the_text_names_is_not_named_twice(report: StreamReport) -> None:
    text = "clickhouse c:9000, table d.t: ClickHouse error 285: Number of alive replicas (1) is too low"
    report.failed(TABLE, TryAgain(text, result=answer("retryable", 285)))

    assert report.troubles == {TABLE: text}


def answer(outcome: Literal["stored", "retryable"], code: int | None = None) -> Result:
    return Result(block=BlockKey(table=TABLE, begin=0, end=1), outcome=outcome, attempts=1, elapsed=0.1, code=code)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (TryAgain("", fault="resend", result=answer("retryable", 286)), "286"),
        (TryAgain("the server refused a question of the driver", fault="replica", code=242), "242"),
        (TryAgain("connection lost", fault="resend", result=answer("retryable")), "connection"),
        (TryAgain("cannot connect", fault="replica"), "connection"),
        (TryAgain("lock of table d.t not free within 60 s", overdue=True), "timeout"),
        (TryAgain("the quorum is unconfirmed", result=answer("stored")), "quorum"),
        (TryAgain("no Spark task works for a/t/0 now"), "driver"),
    ],
)
def test_a_failed_insert_is_counted_by_its_number_or_by_what_it_was(outcome: TryAgain, code: str) -> None:
    nothing: Any = None
    figures = Figures()
    StreamReport(StreamId("a", "events", 0), figures, nothing, nothing, lambda: 0).failed(TABLE, outcome)

    (family,) = (f for f in figures.registry.collect() if f.name == "blockhouse_insert_failures")
    assert [s.labels for s in family.samples if s.value == 1] == [{"table": TABLE, "code": code}]


async def test_without_a_refusal_it_is_the_cause_alone(report: StreamReport) -> None:
    async def prove(_: Any) -> None: ...

    grant: Any = None  # no task is there that would get it
    with pytest.raises(Retryable) as raised:
        await CurrentTask("a/events/0", Faults(), prove).insert(grant, grant)
    report.failed(TABLE, TryAgain(str(raised.value)))

    assert report.troubles == {TABLE: "no Spark task works for a/events/0 now"}
