"""A history of load that the next process begins with: the records it is kept in, and what is taken over of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockhouse.load.columns import CHUNK, RING, WIDTH, Column, LaterVersion, decode, encode
from blockhouse.load.history import FIVE_MINUTES, HOUR, Window
from blockhouse.load.kept import KeptHistory
from blockhouse.load.model import PartitionLoad, RateSource, Sample
from blockhouse.placement.model import TopicPartition

KEY, SIBLING = TopicPartition("a", 0), TopicPartition("a", 1)
START = 1_000.0 * HOUR
CLOSE = 0.001
THREE_HOURS = Window(3 * HOUR)


def sample(at: float, cluster: str = "c", **rates: float) -> Sample:
    """Rates of partitions of topics of one letter, as `a0`."""
    loads = {TopicPartition(name[0], int(name[1:])): PartitionLoad(rate, rate / 10) for name, rate in rates.items()}
    return Sample(cluster, "test", at, 60, loads)


def stored(columns: list[Column], log: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """What a compacted topic holds after these were written to it."""
    log = {} if log is None else log
    for column in columns:
        log.update(encode(column))
    return log


def read(log: dict[bytes, bytes]) -> list[Column]:
    return [column for value in log.values() if (column := decode(value)) is not None]


def columns() -> st.SearchStrategy[Column]:
    keys = st.sets(st.tuples(st.sampled_from(["a", "b.c", "ü"]), st.integers(-1, 40)), max_size=30)

    @st.composite
    def made(draw: st.DrawFn) -> Column:
        span = draw(st.sampled_from(sorted(RING)))
        found = tuple(TopicPartition(*key) for key in draw(keys))
        numbers = st.integers(0, 65535)
        codes = draw(st.lists(st.tuples(*[numbers] * WIDTH[span]), min_size=len(found), max_size=len(found)))
        shaped = np.array(codes, np.uint16).reshape(len(found), WIDTH[span])
        return Column(
            draw(st.text(max_size=22)), span, draw(st.integers(0, 1 << 40)), draw(st.floats(0, 1e11)), found, shaped
        )

    return made()


@settings(deadline=None)
@given(columns())
def test_any_column_is_read_as_it_was_written(column: Column) -> None:
    ((_, value),) = encode(column)

    found = decode(value)

    assert found is not None
    assert (found.cluster, found.span, found.slot, found.at) == (column.cluster, column.span, column.slot, column.at)
    rows = {key: row.tolist() for key, row in zip(column.keys, column.codes, strict=True)}
    assert {key: row.tolist() for key, row in zip(found.keys, found.codes, strict=True)} == rows


@given(st.binary(max_size=80), st.booleans())
def test_what_others_wrote_is_ignored(value: bytes, ours: bool) -> None:
    assert decode(None) is None
    assert decode(b"bhload\x01" + value if ours else value) is None


@given(columns(), st.data())
def test_what_was_cut_or_changed_is_ignored_or_read(column: Column, data: st.DataObject) -> None:
    ((_, value),) = encode(column)
    at = data.draw(st.integers(7, len(value) - 1))

    decode(value[:at])
    decode(value[:at] + bytes([value[at] ^ 0xFF]) + value[at + 1 :])


def test_a_later_version_is_named() -> None:
    ((_, value),) = encode(Column("c", HOUR, 5, 1.0, (KEY,), np.ones((1, 4), np.uint16)))

    with pytest.raises(LaterVersion, match="version 2"):
        decode(value[:6] + b"\x02" + value[7:])


def test_many_partitions_are_many_records_and_few_bytes() -> None:
    keys = tuple(TopicPartition(f"topic-{number // 100}", number % 100) for number in range(30_000))
    records = dict(encode(Column("c", HOUR, 5, 1.0, keys, np.ones((30_000, 4), np.uint16))))

    assert len(records) == 30_000 // CHUNK + 1
    assert sum(map(len, records.values())) < 30_000 * 8 + 300 * 60
    assert max(map(len, records.values())) < 1_000_000
    assert sorted(key for column in read(records) for key in column.keys) == sorted(keys)


def test_a_log_holds_no_more_than_the_history() -> None:
    history, log = KeptHistory(), dict[bytes, bytes]()
    for number in range(0, 15 * 24 * HOUR, HOUR // 2):
        history.add(sample(START + number, a0=1.0))
        stored(history.changed(), log)

    assert len(log) <= sum(RING.values())
    assert {key.split(b"/")[0] for key in log} == {b"300", b"3600"}


def test_the_next_process_has_all_rates_at_once_and_names_their_source() -> None:
    former, log = KeptHistory(), dict[bytes, bytes]()
    for number in range(40 * 12):
        former.add(sample(START + number * FIVE_MINUTES + 10, a0=100.0 + number % 7, a1=5.0))
        stored(former.changed(), log)
    now = START + 40 * HOUR - FIVE_MINUTES + 60

    history = KeptHistory()
    assert history.restore(read(log), "c", now) == len(read(log))

    for window in (Window(600), THREE_HOURS, Window(30 * HOUR)):
        before = former.rates([KEY, SIBLING], window, now, 1.0)
        after = history.rates([KEY, SIBLING], window, now, 1.0)
        assert {key: rate.bytes for key, rate in after.items()} == {
            key: pytest.approx(rate.bytes, rel=CLOSE) for key, rate in before.items()
        }
        assert {rate.source for rate in after.values()} == {RateSource.HISTORY}
        assert after[KEY].age == pytest.approx(before[KEY].age, abs=1)
    assert history.same_hours([KEY], now) == {KEY: pytest.approx(106, rel=CLOSE)}


def test_what_is_measured_is_no_history_any_more_and_is_added_to_the_five_minutes_now() -> None:
    former = KeptHistory()
    former.add(sample(START + 10, a0=100.0, a1=8.0))
    history = KeptHistory()
    history.restore(read(stored(former.changed())), "c", START + 20)

    history.add(sample(START + 30, a0=200.0))

    found = history.rates([KEY, SIBLING], Window(600), START + 30, 1.0)
    assert (found[KEY].bytes, found[KEY].source) == (pytest.approx(150, rel=CLOSE), RateSource.PARTITION)
    assert (found[SIBLING].bytes, found[SIBLING].source) == (pytest.approx(8, rel=CLOSE), RateSource.HISTORY)


def test_hours_close_over_a_restart() -> None:
    former = KeptHistory()
    for minute in (2, 7, 12):
        former.add(sample(START + minute * 60, a0=100.0))
    history = KeptHistory()
    history.restore(read(stored(former.changed())), "c", START + 20 * 60)

    history.add(sample(START + 25 * HOUR, a0=1.0))

    assert history.same_hours([KEY], START + 24 * HOUR) == {KEY: pytest.approx(100, rel=CLOSE)}


def test_other_clusters_the_future_and_what_was_replaced_are_left_out() -> None:
    def column(slot: int, cluster: str = "c", span: int = FIVE_MINUTES) -> Column:
        return Column(cluster, span, slot, slot * span, (KEY,), np.full((1, WIDTH[span]), 5000, np.uint16))

    now = int(START // FIVE_MINUTES)
    old = column(now - RING[FIVE_MINUTES])
    history = KeptHistory()

    assert history.restore([column(now, "d"), column(now + 9)], "c", START) == 0
    assert history.cluster_id is None
    assert history.restore([column(now), old, column(now // 12 - RING[HOUR] - 1, span=HOUR)], "c", START) == 1


def test_topics_that_are_not_asked_for_are_not_taken_over() -> None:
    former = KeptHistory()
    former.add(sample(START, a0=1.0, b0=2.0))
    history = KeptHistory(interesting=lambda topic: topic == "b")

    history.restore(read(stored(former.changed())), "c", START)

    assert len(history) == 1


def test_the_same_hour_of_other_days() -> None:
    history = KeptHistory()
    for hour in range(60):
        history.add(sample(START + hour * HOUR, a0=100.0 + hour))

    stranger = TopicPartition("b", 0)
    assert history.same_hours([KEY, stranger], START + 60 * HOUR) == {KEY: pytest.approx(136, rel=CLOSE)}
    assert history.same_hours([stranger], START + 60 * HOUR) == {}
