"""History: what a window gives, what lends a rate where there is none, and how much memory it takes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockhouse.errors import Permanent
from blockhouse.load.figures import Statistic, coded, decoded, reduced
from blockhouse.load.history import FIVE_MINUTES, HOUR, LoadHistory, Window
from blockhouse.load.model import PartitionLoad, Quality, RateSource, Sample
from blockhouse.placement.model import TopicPartition

KEY, SIBLING, STRANGER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
START = 1_000 * HOUR
CLOSE = 0.001


def sample(at: float, *, cluster: str = "c", topics: dict[str, float] | None = None, **rates: float) -> Sample:
    """Rates by `topic_partition`."""
    loads = {TopicPartition(*_split(name)): PartitionLoad(rate, rate / 100) for name, rate in rates.items()}
    whole = {topic: PartitionLoad(rate, None, Quality.ESTIMATED) for topic, rate in (topics or {}).items()}
    return Sample(cluster, "test", at, 60, loads, whole)


def _split(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("_")
    return topic, int(partition)


def filled(rates: list[float], step: float = FIVE_MINUTES) -> LoadHistory:
    history = LoadHistory()
    for number, rate in enumerate(rates):
        history.add(sample(START + number * step, a_0=rate))
    return history


@pytest.mark.parametrize(("statistic", "expected"), [(Statistic.MEAN, 10.5), (Statistic.P95, 19), (Statistic.MAX, 20)])
def test_a_window_is_reduced_to_its_statistic(statistic: Statistic, expected: float) -> None:
    history = filled([float(n) for n in range(1, 21)])
    rate = history.rate(KEY, Window(2 * HOUR, statistic), START + 20 * FIVE_MINUTES, 0)
    assert (rate.bytes, rate.source) == (pytest.approx(expected, rel=CLOSE), RateSource.PARTITION)
    assert rate.age == FIVE_MINUTES


def test_hours_that_are_no_longer_kept_in_fives_still_count() -> None:
    """Six hours: the first at 100, the others at 10; only hours remember the first."""
    history = filled([100.0] * 12 + [10.0] * 60)
    now = START + 6 * HOUR
    assert history.rate(KEY, Window(6 * HOUR, Statistic.MAX), now, 0).bytes == pytest.approx(100, rel=CLOSE)
    assert history.rate(KEY, Window(3 * HOUR, Statistic.MAX), now, 0).bytes == pytest.approx(10, rel=CLOSE)
    assert history.rate(KEY, Window(6 * HOUR, Statistic.MEAN), now, 0).bytes == pytest.approx(25, rel=CLOSE)


def test_a_partition_without_a_rate_gets_the_mean_of_its_topic_and_reports_it() -> None:
    history = LoadHistory()
    history.add(sample(START, a_0=100))
    history.add(sample(START + 60, a_0=300))
    rates = history.rates([SIBLING, STRANGER], Window(), START + 90, 5.0)
    assert rates[SIBLING].source is RateSource.TOPIC
    assert rates[SIBLING].bytes == pytest.approx(200)
    assert (rates[SIBLING].age, rates[SIBLING].quality) == (30, Quality.ESTIMATED)
    assert (rates[STRANGER].bytes, rates[STRANGER].source, rates[STRANGER].age) == (5.0, RateSource.DEFAULT, None)


def test_a_topics_own_rate_is_shared_out() -> None:
    history = LoadHistory()
    history.add(sample(START, topics={"a": 1000}))
    rates = history.rates([KEY, SIBLING], Window(), START, 5.0, counts={"a": 4})
    assert [(rate.bytes, rate.source) for rate in rates.values()] == [(pytest.approx(250), RateSource.TOPIC)] * 2


@pytest.mark.parametrize("absurd", [float("nan"), float("inf"), -1.0])
def test_what_is_no_rate_is_not_kept(absurd: float) -> None:
    history = filled([100.0, absurd])
    assert history.rate(KEY, Window(), START + HOUR, 5.0).bytes == pytest.approx(100, rel=CLOSE)


def test_an_old_sample_changes_nothing() -> None:
    history = filled([10.0, 10.0])
    history.add(sample(START, a_0=1e9))
    assert history.rate(KEY, Window(statistic=Statistic.MAX), START + HOUR, 0).bytes == pytest.approx(10, rel=CLOSE)


def test_figures_end_with_their_window() -> None:
    history = filled([10.0])
    assert history.rate(KEY, Window(HOUR), START + FIVE_MINUTES, 5.0).source is RateSource.PARTITION
    history.add(sample(START + 3 * HOUR, b_0=1))
    assert history.rate(KEY, Window(HOUR), START + 3 * HOUR, 5.0).source is RateSource.DEFAULT


@pytest.mark.parametrize("begin", range(0, FIVE_MINUTES, 70))
def test_a_window_of_seconds_ends_after_seconds(begin: int) -> None:
    """Wherever it falls in five minutes of the clock."""
    history = LoadHistory()
    rates = [1000.0] * 60 + [10.0] * 30
    for second, rate in enumerate(rates):
        history.add(sample(START + begin + second, a_0=rate))
    now = START + begin + len(rates)
    assert history.rate(KEY, Window(20, Statistic.MAX), now, 0).bytes == pytest.approx(10, rel=CLOSE)
    assert history.rate(KEY, Window(60, Statistic.MAX), now, 0).bytes == pytest.approx(1000, rel=CLOSE)
    assert history.rate(KEY, Window(60, Statistic.MEAN), now, 0).bytes < 1000


def test_an_hour_before_a_long_silence_is_kept() -> None:
    history = filled([100.0] * 12)
    history.add(sample(START + 6 * HOUR, a_0=1))
    rate = history.rate(KEY, Window(7 * HOUR, Statistic.MAX), START + 6 * HOUR, 0)
    assert rate.bytes == pytest.approx(100, rel=CLOSE)


def test_another_cluster_is_refused() -> None:
    history = filled([10.0])
    with pytest.raises(Permanent, match="another cluster"):
        history.add(sample(START, cluster="d", a_0=1))


def test_memory_is_bounded_in_samples_and_in_partitions() -> None:
    history = LoadHistory(capacity=1000)
    for number in range(300):
        loads = {TopicPartition("t", n): PartitionLoad(1.0) for n in range(1200)}
        history.add(Sample("c", "test", START + number * FIVE_MINUTES, 60, loads))
    assert len(history) == 1000
    assert history.dropped == 200
    assert history.nbytes < 1000 * 1664


def test_only_interesting_topics_are_kept_and_forgotten_ones_make_room() -> None:
    history = LoadHistory(capacity=1, interesting=lambda topic: topic == "a")
    history.add(sample(START, a_0=1, b_0=2))
    assert (len(history), history.dropped) == (1, 0)
    history.forget([KEY, STRANGER])
    history.add(sample(START + 60, a_1=3))
    assert history.rate(SIBLING, Window(), START + 60, 0).bytes == pytest.approx(3)
    assert history.rate(KEY, Window(), START + 60, 7).source is RateSource.TOPIC


@given(st.lists(st.floats(0, 1e15), min_size=1))
def test_codes_keep_rates_within_a_thousandth(rates: list[float]) -> None:
    found = decoded(coded(np.array(rates)))
    assert np.all(np.abs(found - rates) <= np.maximum(np.array(rates) * CLOSE, 1e-3))


@given(st.lists(st.floats(0, 1e9) | st.just(float("nan")), min_size=1, max_size=40), st.sampled_from(list(Statistic)))
def test_a_statistic_is_one_of_what_is_known(values: list[float], statistic: Statistic) -> None:
    known = [value for value in values if value == value]
    found = float(reduced(np.array([values]), np.ones(len(values)), statistic)[0])
    if not known:
        assert found != found
    else:
        assert min(known) - 1e-6 <= found <= max(known) * (1 + 1e-12) + 1e-6
        if statistic is Statistic.P95:
            assert sum(value <= found for value in known) >= 0.95 * len(known) - 1e-6
