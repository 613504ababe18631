"""The header of a hop: read as it was written, and cycles seen across any number of hops."""

from __future__ import annotations

import pytest

from blockhouse_mirror.protocol.provenance import (
    AFTER,
    HEADER,
    Origin,
    came_from,
    decode,
    newest,
    origin_format,
    without,
)

CLUSTER, TOPIC_ID = "Mk3OEYBSRHuTvEM7a5JwTg", "b0Yb1zvPTVW9tCn1SsbvPw"


def hop(cluster: str, offset: int = 5) -> tuple[str, bytes]:
    return HEADER, origin_format(cluster, TOPIC_ID, 3) % offset + AFTER % (offset - 1)


def test_an_origin_is_read_as_it_was_written() -> None:
    written = origin_format(CLUSTER, TOPIC_ID, 3) % (1 << 60)

    assert decode(written) == Origin(CLUSTER, TOPIC_ID, 3, 1 << 60, 1 << 60), "it follows without a gap"
    assert decode(written + AFTER % 17) == Origin(CLUSTER, TOPIC_ID, 3, 1 << 60, 17)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"x",
        b"2 c t 3 4 5",  # a later version
        b"1 c t 3",
        b"1 c t 3 4 5 6",
        b"1 c t three 4 5",
        b"1 c t 3 4.0",
        b"1 c t 3 4 5.0",
        b"\xff\xfe 1 c t 3 4 5",
    ],
)
def test_what_is_not_ours_is_no_origin(value: bytes | None) -> None:
    assert decode(value) is None


def test_the_newest_hop_is_the_last_one() -> None:
    headers = [hop("a", 1), ("trace", b"7"), hop("b", 2), ("trace", None)]

    found = newest(headers)

    assert found is not None
    assert (found.cluster, found.offset) == ("b", 2)
    assert newest([("trace", b"7")]) is None


def test_a_newest_hop_that_cannot_be_read_is_not_replaced_by_an_older_one() -> None:
    assert newest([hop("a"), (HEADER, b"9 of a later version")]) is None


def test_a_cycle_is_seen_over_any_number_of_hops() -> None:
    """a -> b -> c -> a: in c the record has two hops, and was in a before."""
    in_c = [hop("a"), ("trace", b"7"), hop("b")]

    assert came_from(in_c, "a")
    assert came_from(in_c, "b")
    assert not came_from(in_c, "c")
    assert not came_from([("trace", b"1 a t 3 4 5")], "a"), "another header is no hop"
    assert not came_from([(HEADER, b"broken")], "a")


def test_headers_of_producers_are_left_in_their_order() -> None:
    assert without([("x", b"1"), hop("a"), ("x", None), hop("b"), ("y", b"")]) == [("x", b"1"), ("x", None), ("y", b"")]
