"""Versions 0 and 1: what is written is read, and a cut text is never taken for a shorter list of tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockhouse.metadata import codec
from blockhouse.metadata.ebay import EbayMetadata, EbayTable
from blockhouse.metadata.errors import MetadataUnreadable

NAMES = st.text("abcXYZ019_.- é", min_size=1, max_size=20).filter(lambda name: name == name.strip())


@st.composite
def tables(draw: st.DrawFn) -> EbayTable:
    begin = draw(st.integers(0, 1 << 60))
    return EbayTable(begin, draw(st.integers(begin - 1, begin + 10_000)), draw(st.integers(0, 10_000)))


V1 = st.builds(
    EbayMetadata,
    version=st.just(1),
    replica=NAMES,
    reference=st.integers(-1, 1 << 60),
    tables=st.dictionaries(NAMES, tables(), max_size=6),
)


@given(V1)
def test_what_was_written_is_read(metadata: EbayMetadata) -> None:
    text = codec.encode(metadata)

    decoded = codec.decode(text, metadata.committed_offset)

    assert decoded == metadata
    assert list(decoded.tables) == list(metadata.tables)


@given(V1, st.data())
def test_a_lost_field_is_noticed(metadata: EbayMetadata, data: st.DataObject) -> None:
    fields = codec.encode(metadata).split(",")
    at = data.draw(st.integers(0, len(fields) - 1))

    with pytest.raises(MetadataUnreadable):
        codec.decode(",".join(fields[:at] + fields[at + 1 :]))
