"""How many bytes a message of these values needs, so that an equal length proves that decoding has left nothing out.

Whatever on the wire did not become a value (an unknown field, a field sent again, a group) takes two bytes or more, and
every value takes at least its shortest encoding: a message at most one byte longer than the shortest encoding of its
values holds nothing else. What the official runtime writes is that shortest encoding, except that `packed` takes a byte
more for a list of exactly one number. A message with several such lists in a row, or of another length, is doubtful:
this module never calls it bad. It must never call one proven that is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from blockhouse_aggregator.wire.arrow import bytes_of, offsets_of, values_of
from blockhouse_aggregator.wire.varints import Integers, Size, positions, spread, width, widths

Mask = npt.NDArray[np.bool_]

_FLOATS = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)
_FIXED = {FieldDescriptor.TYPE_BOOL: 1, FieldDescriptor.TYPE_FLOAT: 4, FieldDescriptor.TYPE_DOUBLE: 8}
_VARINTS = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)
_ROWS_TAG = 0x0A
# Readers differ in what they make of a tag of six bytes, one more than five.
_LONGEST_TAG = 4


@dataclass(frozen=True, slots=True)
class _Lengths:
    """`size` is what the official runtime writes; the shortest encoding has `spare` bytes less."""

    size: Size
    spare: Size = 0


@dataclass(frozen=True, slots=True)
class _Rule:
    """A field of a message: `tag` is the tag's length, `members` are the fields of the message it holds."""

    name: str
    type: int
    tag: int
    repeated: bool
    members: tuple[_Rule, ...]

    @property
    def packed(self) -> bool:
        return self.repeated and (self.type in _FIXED or self.type in _VARINTS)


class LengthCheck:
    """Compares the length of `RowBatch` messages with what the rows read from them need."""

    def __init__(self, batch: type[Message]) -> None:
        self._rules = _rules(batch.DESCRIPTOR.fields_by_name["rows"].message_type)
        rules = list(_all(self._rules))
        self._applies = all(rule.tag <= _LONGEST_TAG for rule in rules)
        # A packed list of floats may end in less than a float, which the fast decoder drops: one such byte would go
        # unseen beside another list of one number.
        lists = [rule for rule in rules if rule.packed]
        alone = len(lists) == 1 and lists[0] in self._rules
        self._allowed = 0 if any(rule.type in _FLOATS for rule in lists) and not alone else 1

    def doubtful(self, rows: pa.ListArray, payloads: pa.BinaryArray) -> npt.NDArray[np.intp]:
        """Indices of the messages that may hold more than `rows`, which were read from them."""
        if not self._applies:
            return np.arange(len(payloads))
        ends = offsets_of(rows)
        found = _message(rows.flatten(), self._rules)
        framed = _prefixed(found)
        proven: Mask = _sums(framed.size, ends) + np.diff(ends) == np.diff(offsets_of(payloads))
        if isinstance(framed.spare, np.ndarray):
            unclear = proven & (_sums(framed.spare, ends) > self._allowed)
            if unclear.any():
                proven[unclear] = self._row_by_row(found, ends, payloads, unclear)
        return np.flatnonzero(~proven)

    def _row_by_row(self, found: _Lengths, ends: Integers, payloads: pa.BinaryArray, chosen: Mask) -> Mask:
        """Which of the chosen messages consist of rows of the expected lengths, each proven by itself.

        By induction: the first row begins where expected, and behind a row of the expected length so does the next.
        """
        counts = np.diff(ends)[chosen]
        rows = np.repeat(chosen, np.diff(ends))
        sizes, spare = np.asarray(found.size)[rows], np.asarray(found.spare)[rows]
        prefix = widths(sizes)
        framed = sizes + prefix + 1
        begins = np.cumsum(framed) - framed
        content = bytes_of(payloads if chosen.all() else payloads.filter(pa.array(chosen)))
        good: Mask = (content[begins] == _ROWS_TAG) & (spare <= self._allowed)
        for byte, which, expected in spread(sizes, prefix):
            good[which] &= content[begins[which] + 1 + byte] == expected
        complete: Mask = _sums(good.view(np.uint8), positions(counts, len(counts))) == counts
        return complete


def _rules(message: Any) -> tuple[_Rule, ...]:
    return tuple(
        _Rule(
            field.name,
            field.type,
            width(field.number << 3),
            field.is_repeated,
            _rules(field.message_type) if field.message_type else (),
        )
        for field in message.fields
    )


def _all(rules: tuple[_Rule, ...]) -> Iterator[_Rule]:
    for rule in rules:
        yield rule
        yield from _all(rule.members)


def _message(messages: pa.StructArray, rules: tuple[_Rule, ...]) -> _Lengths:
    """The fields of each message, without a length before them."""
    fields = dict(zip((field.name for field in messages.type), messages.flatten(), strict=True))
    constant = 0
    varying = np.zeros(len(messages), np.int32)
    spare: Size = 0
    for rule in rules:
        found = _repeated(fields[rule.name], rule) if rule.repeated else _singular(fields[rule.name], rule)
        if isinstance(found.size, int):
            constant += found.size
        else:
            varying += found.size
        if isinstance(found.spare, np.ndarray):
            spare = spare + found.spare
    return _Lengths(varying + constant, spare)


def _singular(field: pa.Array, rule: _Rule) -> _Lengths:
    found = _values(field, rule)
    size = found.size + rule.tag
    if field.null_count:
        size = size * field.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    # Absent messages have no lists, hence nothing to spare.
    return _Lengths(size, found.spare)


def _repeated(field: pa.ListArray, rule: _Rule) -> _Lengths:
    ends = offsets_of(field)
    found = _values(field.flatten(), rule)
    if rule.packed:
        content = _sums(found.size, ends)
        counts = np.diff(ends)
        return _Lengths((content + widths(content) + rule.tag) * (counts > 0), (counts == 1).view(np.uint8))
    spare = found.spare if isinstance(found.spare, int) else _sums(found.spare, ends)
    return _Lengths(_sums(found.size + rule.tag, ends), spare)


def _values(values: pa.Array, rule: _Rule) -> _Lengths:
    """Each value with its length before it, where it has one, but without a tag."""
    if rule.members:
        return _prefixed(_message(values, rule.members))
    if rule.type in _FIXED:
        return _Lengths(_FIXED[rule.type])
    if rule.type in _VARINTS:
        return _Lengths(widths(values_of(values, np.dtype(np.uint64)).view(np.uint64)))
    return _prefixed(_Lengths(np.diff(offsets_of(values))))


def _prefixed(found: _Lengths) -> _Lengths:
    size = found.size + widths(found.size)
    if isinstance(found.spare, int):
        return _Lengths(size)
    least = found.size - found.spare
    return _Lengths(size, size - (least + widths(least)))


def _sums(sizes: Size, ends: Integers) -> Integers:
    """The sum of each stretch of `sizes`; `ends` are where stretches end, and first where they begin."""
    if isinstance(sizes, int):
        return np.multiply(np.diff(ends), sizes)
    sums: Integers = np.diff(positions(sizes, len(sizes))[ends - ends[0]])
    return sums
