"""Random values for any ClickHouse type, drawn from a given generator. Pure.

Times lie within twenty days of one month, so that a table partitioned by day or month gets few partitions.
"""

from __future__ import annotations

import random
from typing import Any, assert_never

from blockhouse.schema.types import Array, Decimal, Fixed, Float, Integer, Map, Nullable, Text, Tuple, Type, Unit, plain

_FIRST_SECOND = 1_793_500_000
_SECONDS = 20 * 86_400
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def sample(type_: Type, rng: random.Random) -> Any:
    """A value as `blockhouse.producer` takes it; None now and then where NULL is allowed."""
    match plain(type_):
        case Integer() as number:
            return _integer(number, rng)
        case Float():
            return rng.random() * 1000
        case Text():
            return "".join(rng.choices(_LETTERS, k=rng.randint(4, 24)))
        case Fixed(size=size):
            return rng.randbytes(size)
        case Decimal() as decimal:
            digits = str(rng.randrange(10 ** min(decimal.precision, 18))).rjust(decimal.scale + 1, "0")
            return f"{digits[: len(digits) - decimal.scale]}.{digits[len(digits) - decimal.scale :]}".rstrip(".")
        case Nullable(inner=inner):
            return sample(inner, rng) if rng.random() < 0.7 else None
        case Array(inner=inner):
            return [sample(inner, rng) for _ in range(rng.randint(0, 4))]
        case Map(key=key, value=value):
            return {sample(key, rng): sample(value, rng) for _ in range(rng.randint(0, 3))}
        case Tuple(elements=elements):
            return [sample(element, rng) for element in elements]
        case unreachable:
            assert_never(unreachable)


def _integer(type_: Integer, rng: random.Random) -> int:
    if type_.codes:
        return rng.choice(type_.codes)[1]
    second = _FIRST_SECOND + rng.randrange(_SECONDS)
    if type_.unit is Unit.DAY:
        return second // 86_400
    if type_.unit is Unit.TICK:
        return min(second * int(10**type_.precision), type_.high)
    return rng.randint(type_.low, type_.high)
