"""The v2 codec is exact: every valid metadata comes back as it was, every damaged text is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from blockhouse.metadata import codec
from blockhouse.metadata.ebay import EbayMetadata
from blockhouse.metadata.errors import MetadataInvalid, MetadataUnreadable
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window

OFFSETS = st.one_of(st.integers(0, 5_000), st.integers(0, 1 << 60))
NAMES = st.text("abcXYZ019_.-", max_size=63)
TIMES = st.integers(0, 1 << 50)


@st.composite
def blocks(draw: st.DrawFn, position: int) -> InFlight:
    end = draw(st.integers(0, position - 1))
    begin = draw(st.integers(max(0, end - 100_000), end))
    messages = draw(st.integers(1, end - begin + 1))
    return InFlight(begin, end, messages, draw(st.integers(0, 5_000)), draw(st.integers(0, (1 << 32) - 1)), draw(TIMES))


@st.composite
def entries(draw: st.DrawFn, table: int, position: int) -> TableEntry:
    block = draw(st.none() | blocks(position)) if position else None
    lowest = block.end + 1 if block else 0
    cursor = draw(st.integers(lowest, position) | st.none()) if block else draw(st.integers(0, position))
    pending = 0 if cursor is None else draw(st.integers(0, min(position - cursor, 1_000)))
    return TableEntry(table, block, cursor, pending)


@st.composite
def metadatas(draw: st.DrawFn) -> Metadata:
    """Valid ones: the window is chosen last, so that its identity holds."""
    position = draw(OFFSETS)
    ids = sorted(draw(st.sets(st.integers(1, 3_000), max_size=12)))
    tables = tuple(draw(entries(table, position)) for table in ids)
    left = position - sum(entry.pending for entry in tables)
    assume(left >= 0)
    sealed = draw(st.integers(0, left))
    dead = draw(st.integers(0, left - sealed))
    holes = draw(st.integers(0, left - sealed - dead))
    return Metadata(
        replica=draw(NAMES),
        seq=draw(st.integers(0, 1 << 40)),
        intent_ms=draw(TIMES),
        topic_id=draw(NAMES),
        leader_epoch=draw(st.integers(-1, 1 << 31)),
        position=position,
        window=Window(left - sealed - dead - holes, sealed, dead, holes),
        tables=tables,
    )


@given(metadatas())
def test_what_was_written_is_read(metadata: Metadata) -> None:
    text = codec.encode(metadata)

    assert codec.decode(text, metadata.committed_offset) == metadata
    assert codec.decode(text) == metadata


@given(metadatas())
def test_text_is_ascii_and_as_long_as_announced(metadata: Metadata) -> None:
    text = codec.encode(metadata)

    assert codec.encoded_size(metadata) == len(text.encode("utf-16-le")) // 2 == len(text.encode("ascii"))
    assert text.isprintable()


@given(metadatas(), st.integers(1, 1 << 40))
def test_another_offset_is_refused(metadata: Metadata, by: int) -> None:
    with pytest.raises(MetadataUnreadable, match="belongs to offset"):
        codec.decode(codec.encode(metadata), metadata.committed_offset + by)


@given(metadatas(), st.data())
def test_any_changed_character_is_noticed(metadata: Metadata, data: st.DataObject) -> None:
    text = codec.encode(metadata)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters().filter(lambda c: c != text[at]))

    with pytest.raises(MetadataUnreadable):
        codec.decode(text[:at] + other + text[at + 1 :])


@given(metadatas(), st.data())
def test_any_truncation_is_noticed(metadata: Metadata, data: st.DataObject) -> None:
    text = codec.encode(metadata)
    length = data.draw(st.integers(0, len(text) - 1))

    with pytest.raises(MetadataUnreadable):
        codec.decode(text[:length])


@given(metadatas(), st.data())
def test_a_lost_or_doubled_character_is_noticed(metadata: Metadata, data: st.DataObject) -> None:
    text = codec.encode(metadata)
    at = data.draw(st.integers(0, len(text) - 1))
    times = data.draw(st.sampled_from([0, 2]))

    with pytest.raises(MetadataUnreadable):
        codec.decode(text[:at] + text[at] * times + text[at + 1 :])


@given(metadatas(), st.integers(-5, 5).filter(bool))
def test_a_broken_identity_is_not_written(metadata: Metadata, by: int) -> None:
    window = replace(metadata.window, sealed=metadata.window.sealed + by)

    with pytest.raises(MetadataInvalid):
        codec.encode(replace(metadata, window=window))


@given(st.text(max_size=200) | st.text("0123,;-t", max_size=30))
def test_any_text_is_read_whole_or_refused(text: str) -> None:
    try:
        metadata = codec.decode(text)
    except MetadataUnreadable:
        return
    assert (isinstance(metadata, EbayMetadata) and metadata.version == 0) or codec.encode(metadata) == text
