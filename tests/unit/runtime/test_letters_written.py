"""Dead letters in the log and on the status page: each is counted, a flood is a few lines, yesterday's are gone."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from blockhouse_aggregator.gate.messages import LettersWritten
from blockhouse_aggregator.runtime.stream.letters_written import (
    MOST_LINES,
    MOST_TABLES,
    QUIET_MS,
    RECENT_MS,
    StreamLetters,
)

DETAIL = 'column price (Decimal(9, 2)), row 2: "dear"'


def written(table: str = "db.t", reason: str = "NotADecimal", count: int = 1, offset: int = 7) -> LettersWritten:
    return LettersWritten(table=table, reason=reason, count=count, offset=offset, detail=DETAIL)


class Clock:
    now = 1_790_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def letters(clock: Clock) -> StreamLetters:
    return StreamLetters("a/events/0", clock)


def test_a_letter_is_one_line_that_names_column_row_and_value(letters: StreamLetters) -> None:
    with capture_logs() as lines:
        letters.written([written()])
    assert lines == [
        {
            "event": "messages.dead_lettered",
            "log_level": "warning",
            "stream": "a/events/0",
            "table": "db.t",
            "reason": "NotADecimal",
            "messages": 1,
            "offset": 7,
            "detail": DETAIL,
        }
    ]


def test_a_flood_is_one_line_a_minute_which_counts_those_without_one(letters: StreamLetters, clock: Clock) -> None:
    with capture_logs() as lines:
        for _ in range(1000):
            letters.written([written(count=3)])
        clock.now += QUIET_MS
        letters.written([written(count=3)])
    assert [line["messages"] for line in lines] == [3, 3 * 1000]


def test_another_reason_of_the_table_has_its_own_line(letters: StreamLetters) -> None:
    with capture_logs() as lines:
        letters.written([written(), written(reason="UnknownColumn")])
    assert [line["reason"] for line in lines] == ["NotADecimal", "UnknownColumn"]


def test_a_thousand_tables_are_a_few_lines_a_minute(letters: StreamLetters, clock: Clock) -> None:
    with capture_logs() as lines:
        letters.written([written(f"db.t{n}") for n in range(1000)])
        assert len(lines) == MOST_LINES
        clock.now += QUIET_MS
        letters.written([written("db.later")])
    assert lines[-1]["table"] == "db.later"


def test_the_page_counts_by_table_and_shows_the_last(letters: StreamLetters, clock: Clock) -> None:
    letters.written([written(count=2, offset=3)])
    clock.now += 1
    letters.written([written(reason="UnknownColumn", offset=9), written("db.u")])
    (first, second) = letters.recent()
    assert (first.table, first.messages, first.reason, first.offset, first.last_ms) == (
        "db.t",
        3,
        "UnknownColumn",
        9,
        clock.now,
    )
    assert second.table == "db.u"


def test_the_page_has_the_newest_tables_of_a_day(letters: StreamLetters, clock: Clock) -> None:
    letters.written([written(f"db.t{n:04}") for n in range(1000)])
    assert [each.table for each in letters.recent()] == [f"db.t{n:04}" for n in range(1000 - MOST_TABLES, 1000)]
    clock.now += RECENT_MS
    assert letters.recent() == ()


def test_a_clock_that_goes_back_silences_no_letter(letters: StreamLetters, clock: Clock) -> None:
    letters.written([written()])
    clock.now -= 3_600_000
    with capture_logs() as lines:
        letters.written([written()])
    assert len(lines) == 1
