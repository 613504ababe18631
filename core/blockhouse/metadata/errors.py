"""Why a metadata text cannot be used. A reader that meets this must leave the committed text alone."""

from __future__ import annotations

from blockhouse.errors import BlockhouseError

_EXCERPT = 80


class MetadataUnreadable(BlockhouseError):
    """The text is damaged, foreign, of an unknown version, or belongs to another offset. Nothing of it may be used."""

    def __init__(self, problem: str, text: str) -> None:
        shown = text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}... ({len(text)} characters)"
        super().__init__(f"metadata unreadable: {problem}: {shown!r}", reason="MetadataUnreadable")
        self.problem = problem


class MetadataInvalid(BlockhouseError):
    """The value cannot be written: it contradicts itself or does not fit the format. A bug of the code that made it."""
