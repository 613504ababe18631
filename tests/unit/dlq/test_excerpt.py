"""What people are shown of a dead letter's value: text as text, everything else as bytes."""

from __future__ import annotations

import pytest

from blockhouse_aggregator.dlq.cli import excerpt


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"id": 1,\n\t"name": "\xc3\xa5sa"}', '{"id": 1,\n\t"name": "åsa"}'),
        (b"\x0a\x07\x08\x01", "0a 07 08 01"),
        (b"\xff\xfe", "ff fe"),
        (b"", ""),
        (b"x" * 300, "x" * 256 + " ..."),
        (b"\x01" * 300, "01 " * 256 + "..."),
    ],
)
def test_text_is_shown_as_text_and_all_else_as_bytes(value: bytes, shown: str) -> None:
    assert excerpt(value) == shown
