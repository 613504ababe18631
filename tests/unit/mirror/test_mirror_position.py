"""A position is kept as text beside an offset: read as it was written, and never guessed from what others wrote."""

from __future__ import annotations

import pytest

from blockhouse.errors import Permanent
from blockhouse_mirror.protocol.position import Holder, Position, decode, encode

POSITION = Position("Mk3OEYBSRHuTvEM7a5JwTg", "b0Yb1zvPTVW9tCn1SsbvPw", 10, 1 << 60, 4, "Zk1", 99, Holder.GRANTED)


@pytest.mark.parametrize("holder", Holder)
@pytest.mark.parametrize("epoch", [-1, 0, 7])
def test_a_position_is_read_as_it_was_written(holder: Holder, epoch: int) -> None:
    position = POSITION.at(12, epoch, 100, holder)

    assert decode(position.tail, encode(position)) == position


def test_it_fits_into_the_brokers_limit_of_metadata() -> None:
    longest = Position("c" * 22, "t" * 22, (1 << 63) - 1, (1 << 63) - 1, (1 << 31) - 1, "u" * 22, (1 << 63) - 1)

    assert len(encode(longest)) < 512, "offset.metadata.max.bytes is 4096 by default"


def test_further_on_is_of_the_same_topics() -> None:
    further = POSITION.at(12, 5, 101, Holder.SETTLED)

    assert (further.cluster, further.topic_id, further.start, further.target_topic_id) == (
        POSITION.cluster,
        POSITION.topic_id,
        POSITION.start,
        POSITION.target_topic_id,
    )
    assert (further.offset, further.epoch, further.tail, further.holder) == (12, 5, 101, Holder.SETTLED)


@pytest.mark.parametrize(
    "metadata",
    ["", "m2 c t 0 1 2 u g", "m1 c t 0 1 2 u", "m1 c t 0 1 2 u g more", "m1 c t 0 one 2 u g", "m1 c t 0 1 2 u x"],
)
def test_what_others_committed_is_refused_by_name(metadata: str) -> None:
    with pytest.raises(Permanent, match="not one that this version of the mirror writes") as caught:
        decode(7, metadata)

    assert caught.value.reason == "PositionUnreadable"
