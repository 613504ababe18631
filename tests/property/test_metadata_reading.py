"""The quick reader reads what the codec reads and refuses what is not of our form."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockhouse.metadata import codec, v2
from blockhouse.metadata.errors import MetadataUnreadable
from blockhouse.metadata.model import Metadata
from blockhouse.metadata.reading import Entry, Reading, read
from tests.property.test_metadata_v2 import metadatas


def plain(metadata: Metadata) -> Reading:
    tables: dict[int, Entry] = {}
    for entry in metadata.tables:
        block = entry.in_flight
        lag = (-1 if entry.cursor is None else entry.cursor, entry.pending)
        if block is None:
            tables[entry.table] = (-1, -1, 0, "", 0, *lag)
        else:
            content = v2._base36(block.revision) + v2._base36(block.crc).rjust(7, "0")
            tables[entry.table] = (block.begin, block.end, block.messages, content, block.intent_ms, *lag)
    window = metadata.window
    return Reading(
        codec.encode(metadata),
        metadata.replica,
        metadata.topic_id,
        metadata.seq,
        metadata.intent_ms,
        metadata.leader_epoch,
        metadata.committed_offset,
        metadata.position,
        window.reference,
        window.sealed,
        window.dead,
        window.holes,
        metadata.pending,
        tables,
    )


@settings(deadline=None)
@given(metadatas())
def test_both_read_the_same(metadata: Metadata) -> None:
    assert read(codec.encode(metadata)) == plain(metadata)


@settings(deadline=None)
@given(metadatas(), st.data())
def test_any_altered_character_is_found(metadata: Metadata, data: st.DataObject) -> None:
    text = codec.encode(metadata)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(max_codepoint=0x17F).filter(lambda c: c != text[at]))

    with pytest.raises(MetadataUnreadable):
        read(text[:at] + other + text[at + 1 :])


@settings(deadline=None)
@given(metadatas(), st.data())
def test_a_foreign_text_with_a_right_checksum_is_read_by_neither_or_alike(
    metadata: Metadata, data: st.DataObject
) -> None:
    text = codec.encode(metadata)
    at = data.draw(st.integers(2, len(text) - 9))
    altered = text[:at] + data.draw(st.sampled_from("0z.;,~-_A+ ")) + text[at + 1 : -8]
    altered += v2._base36(crc32(altered.encode())).rjust(7, "0") + ";"

    try:
        found = read(altered)
    except MetadataUnreadable:
        with pytest.raises(MetadataUnreadable):
            codec.decode(altered)
        return
    try:
        decoded = codec.decode(altered)
    except MetadataUnreadable:
        return  # it contradicts itself, which the quick reader leaves to others
    assert isinstance(decoded, Metadata)
    assert found == plain(decoded)
