"""One door to all metadata formats: which version a text is, and how a value is written."""

from __future__ import annotations

import re

from blockhouse.metadata import ebay, v2
from blockhouse.metadata.ebay import EbayMetadata
from blockhouse.metadata.errors import MetadataInvalid, MetadataUnreadable
from blockhouse.metadata.model import Metadata
from blockhouse.metadata.v2 import encoded_size

__all__ = ["EbayMetadata", "Metadata", "MetadataInvalid", "MetadataUnreadable", "decode", "encode", "encoded_size"]

_OUR_FAMILY = re.compile(r"\d+;")


def decode(text: str, committed_offset: int | None = None) -> Metadata | EbayMetadata:
    """The metadata that `text` holds, whatever its version. With `committed_offset` also checks that it belongs to it.

    Raises MetadataUnreadable; there is no partial result.
    """
    if text.startswith(v2.PREFIX):
        return v2.decode(text, committed_offset)
    if _OUR_FAMILY.match(text):
        raise MetadataUnreadable(f"version {text.split(';')[0]} is not known to this release", text)
    return ebay.decode(text, committed_offset)


def encode(metadata: Metadata | EbayMetadata) -> str:
    """The text to commit: version 2 of a Metadata, version 1 of an EbayMetadata. Raises MetadataInvalid."""
    return v2.encode(metadata) if isinstance(metadata, Metadata) else ebay.encode(metadata)
