"""The grammar of durations, sizes and percentages, which configuration files and custom resources share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockhouse.config.units import duration_text, fraction, percent_text, seconds, size_bytes, size_text, time_span

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "value"), [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("24h", 86400), ("0s", 0), ("1ms", 0.001)]
)
def test_a_duration_is_a_number_of_seconds(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(("text", "value"), [("7", 7), ("1Ki", 1024), ("10Mi", 10 << 20), ("1Ti", 1 << 40)])
def test_a_size_is_a_number_of_bytes(text: str, value: int) -> None:
    assert size_bytes(text) == value


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1 s", "1d", "1e3s", "1s\n1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        seconds(text)


@pytest.mark.parametrize(("text", "value"), [("500ms", 0.5), ("30m", 1800), ("2h", 7200), ("1.5d", 129_600)])
def test_a_person_may_count_days_on_a_command_line(text: str, value: float) -> None:
    assert time_span(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "soon", "10", "d", "-1d", "1e3s", "infd", "1 d", "0s", "0.0d"])
def test_a_time_span_is_a_duration_above_zero(text: str) -> None:
    with pytest.raises(ValueError, match=r"no (duration: expected .*ms, s, m, h or d|time at all)"):
        time_span(text)


@pytest.mark.parametrize("text", ["", "Mi", "-1", "1.5Mi", "1M", "1 Mi"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        size_bytes(text)


@pytest.mark.parametrize(("text", "value"), [("70%", 0.7), ("0%", 0), ("2.5%", 0.025), ("100%", 1)])
def test_a_percentage_is_a_part_of_a_whole(text: str, value: float) -> None:
    assert fraction(text) == pytest.approx(value)
    assert percent_text(fraction(text)) == text


@pytest.mark.parametrize("text", ["", "70", "%", "-1%", "0.7", "1 %"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no percentage"):
        fraction(text)


@given(st.integers(0, 10**10))
def test_a_duration_keeps_its_milliseconds_as_a_text(milliseconds: int) -> None:
    assert round(seconds(duration_text(milliseconds / 1000)) * 1000) == milliseconds


@given(st.integers(0, 1 << 50))
def test_a_size_keeps_its_bytes_as_a_text(size: int) -> None:
    assert size_bytes(size_text(size)) == size


def test_the_grammar_is_written_once() -> None:
    """A second one would accept what the first refuses. Quantities of Kubernetes are another grammar."""
    sources = [path for part in ("core", "aggregator", "operator", "e2e") for path in (ROOT / part).rglob("*.py")]
    spelt = re.compile(r"""\((ms\|)?s\|m\|h|\(Ki\|Mi|["']h["']: *3_?600""")
    own = [str(path.relative_to(ROOT)) for path in sources if spelt.search(path.read_text())]
    assert own == ["core/blockhouse/config/units.py"]
