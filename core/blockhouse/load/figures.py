"""Arithmetic of many rates at once: 16-bit logarithms of them, and what a window of them is reduced to.

Pure. Every array has a row for each partition; NaN is "not known", never zero.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint16]
Values = NDArray[np.float64]

UNKNOWN, ZERO = 0, 1
_SCALE, _LOWEST = 1200.0, 1e-3  # code = 2 + 1200 * ln(rate / 0.001): up to 5e20, 0.04 % exact


class Statistic(StrEnum):
    """What a window of rates is reduced to."""

    MEAN = "mean"
    P95 = "p95"
    MAX = "max"


def reduced(values: Values, weights: Values, statistic: Statistic) -> Values:
    """By row, the statistic of the known values, each as often as its weight demands; NaN where there is none."""
    known = np.isfinite(values)
    if statistic is Statistic.MAX:
        found = np.max(np.where(known, values, -np.inf), axis=1, initial=-np.inf)
        return np.where(np.isfinite(found), found, np.nan)
    weight = np.where(known, weights, 0.0)
    total = weight.sum(axis=1)
    if statistic is Statistic.MEAN:
        with np.errstate(invalid="ignore", divide="ignore"):
            weighted: Values = (np.where(known, values, 0.0) * weight).sum(axis=1) / total
        return weighted
    order = np.argsort(np.where(known, values, np.inf), axis=1)
    reached = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    at = np.argmax(reached >= 0.95 * total[:, None] - 1e-9, axis=1)
    found = np.take_along_axis(np.take_along_axis(values, order, axis=1), at[:, None], axis=1)[:, 0]
    return np.where(total > 0, found, np.nan)


def mean(values: Values) -> Values:
    """By row, the mean of the known values; NaN where there is none."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Values = np.where(known, values, 0.0).sum(axis=1) / known.sum(axis=1)
    return found


def plausible(rate: float) -> bool:
    """A provider may answer NaN, infinity or less than nothing: none of these is a rate."""
    return math.isfinite(rate) and rate >= 0


def coded(values: Values) -> Codes:
    """Rates as 16-bit logarithms; NaN becomes UNKNOWN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        codes = 2 + np.round(_SCALE * np.log(values / _LOWEST))
    codes = np.where(values < _LOWEST, ZERO, np.clip(codes, 2, np.iinfo(np.uint16).max))
    return np.where(np.isfinite(values), codes, UNKNOWN).astype(np.uint16)


def decoded(codes: Codes) -> Values:
    """The rates of these codes, within 0.05 %."""
    values = _LOWEST * np.exp((codes.astype(np.float64) - 2) / _SCALE)
    return np.where(codes == UNKNOWN, np.nan, np.where(codes == ZERO, 0.0, values))
