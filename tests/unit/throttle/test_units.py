"""Rates as people write them: with a unit, or not at all."""

from __future__ import annotations

import pytest

from blockhouse.throttle.units import rate_of

READ = {
    "50M": 50_000_000,
    "50MB/s": 50_000_000,
    "1.5MB": 1_500_000,
    "64Mi": 64 << 20,
    "64MiB/s": 64 << 20,
    "10Gbit/s": 1_250_000_000,
    "500B": 500,
    "12kB/s": 12_000,
}


@pytest.mark.parametrize(("text", "rate"), READ.items())
def test_a_rate_with_a_unit_is_read(text: str, rate: int) -> None:
    assert rate_of(text) == rate


@pytest.mark.parametrize("text", ["50", "50/s", "1250000"])
def test_a_bare_number_is_refused_because_bytes_are_taken_for_megabytes(text: str) -> None:
    with pytest.raises(ValueError, match=r"has no unit.*50MB/s"):
        rate_of(text)


@pytest.mark.parametrize("text", ["", "fast", "-5M", "50 MB per second", "5m", "5mb", "ki", "nanM"])
def test_what_is_no_rate_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="give for example 50M"):
        rate_of(text)


def test_less_than_a_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing would ever be copied"):
        rate_of("0M")
