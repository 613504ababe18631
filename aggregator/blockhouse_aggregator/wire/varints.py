"""Varints (LEB128) of whole arrays: protobuf's lengths and numbers, and the lengths in ClickHouse's Native format.

Must never loop over the values in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Size: TypeAlias = int | Integers
"""Bytes of each of many values: one number where all have the same."""
Words: TypeAlias = npt.NDArray[np.uint64]
"""Eight bytes each, the first one lowest."""


def varint(number: int) -> bytes:
    """One varint."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def width(number: int) -> int:
    """Bytes of the varint of `number`, which is not negative."""
    return max(1, (number.bit_length() + 6) // 7)


def widths(numbers: Size) -> Size:
    """The same for many."""
    if isinstance(numbers, int):
        return width(numbers)
    if not len(numbers):
        return 1
    least, most = width(int(numbers.min())), width(int(numbers.max()))
    if least == most:
        return least
    found = np.full(len(numbers), least, np.uint8)
    for bits in range(7 * least, 7 * most, 7):
        found += (numbers >= 1 << bits).view(np.uint8)
    return found


def positions(sizes: Size, count: int) -> npt.NDArray[np.int64]:
    """Where each of `count` things of these sizes begins, one behind the other, and where the last ends."""
    if isinstance(sizes, int):
        return np.arange(count + 1) * sizes
    found = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=found[1:])
    return found


def spread(numbers: Integers, sizes: Size) -> Iterator[tuple[int, npt.NDArray[np.intp] | slice, Integers]]:
    """The bytes of the varints, first ones first: which byte it is, of which numbers, and those bytes."""
    most = sizes if isinstance(sizes, int) else int(sizes.max())
    for byte in range(most):
        chosen = slice(None) if isinstance(sizes, int) or not byte else np.flatnonzero(sizes > byte)
        left = numbers[chosen] >> 7 * byte
        yield byte, chosen, (left if byte == most - 1 else left & 127 | (left > 127) * 128).astype(np.uint8)


def varints(words: Words) -> tuple[Words, npt.NDArray[np.int64]]:
    """The numbers that begin in the first byte of each word, and their bytes. Where eight bytes do not end the number
    its size is 9, and the number is what the eight bytes hold of it."""
    ends = ~words & np.uint64(0x8080808080808080)
    # All bits below the lowest one that ends a number: 7 of its last byte, 8 of each before; 64 where none does.
    below = (ends & -ends) - np.uint64(1)
    sizes = (np.bitwise_count(below).astype(np.int64) >> 3) + 1
    found = words & below & np.uint64(0x7F7F7F7F7F7F7F7F)
    most = int(sizes.max()) if len(sizes) else 0
    # Groups of 7 bits are pushed together: in pairs, in fours, in eights.
    for width, group in ((7, 0x007F007F007F007F), (14, 0x00003FFF00003FFF), (28, 0x000000000FFFFFFF)):
        if most > width // 7:
            low = np.uint64(group)
            found = found & low | (found & ~low) >> np.uint64(width // 7)
    return found, sizes
