"""What rows hold of their topic, and that a block is the same bytes whenever and by whomever it is rebuilt."""

from __future__ import annotations

import pytest

from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.errors import Permanent
from blockhouse.schema.history import extend, first_revision
from blockhouse.schema.model import DefaultKind, Revision, ServerColumn, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder, EncodedBlock
from tests.format_messages import encode

STREAM = StreamId("a", "events-01", 3)
BEFORE = (ServerColumn(name="n", type="UInt32"), ServerColumn(name="_kafka_offset", type="UInt64"))
TOPIC = ServerColumn(name="_kafka_topic", type="String")
OLD = TableHistory(id=1, name="db.t", revisions=(first_revision(BEFORE),))
NEW = extend(OLD, (*BEFORE, TOPIC))


def block(revision: Revision, topic_id: str, *, foreign: bool = False) -> EncodedBlock:
    builder = BlockBuilder(NEW, revision, STREAM, topic_id=topic_id, foreign=foreign)
    builder.append(7, encode("rows", OLD, [{"n": 1}, {"n": 2}]), 0)
    sealed = builder.seal(MAX_ROWS).block
    assert sealed is not None
    return sealed


def test_rows_name_their_topic_and_its_id() -> None:
    assert NEW.current is not None
    assert NEW.current.names_topic
    body = block(NEW.current, "Qm9uam91cg").body
    assert body.count(b"events-01/Qm9uam91cg") == 2
    assert body != block(NEW.current, "another").body


def test_a_block_of_a_revision_without_the_column_is_what_it_was() -> None:
    """Its intent was written before the column was added, its replay comes after: no id may show."""
    (old, _) = NEW.revisions
    assert not old.names_topic
    assert block(old, "one") == block(old, "another")
    assert b"events-01" not in block(old, "one").body


def test_a_block_of_another_aggregator_holds_what_the_server_put_there() -> None:
    assert NEW.current is not None
    assert b"events-01" not in block(NEW.current, "one", foreign=True).body


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (TOPIC.model_copy(update={"type": "UInt64"}), "UnsupportedType"),
        (
            TOPIC.model_copy(update={"default_kind": DefaultKind.DEFAULT, "default_expression": "'events-01/x'"}),
            "UnsupportedDefault",
        ),
    ],
)
def test_a_column_that_cannot_state_the_topic_of_every_row_is_refused(column: ServerColumn, reason: str) -> None:
    history = extend(OLD, (*BEFORE, column))
    assert history.current is not None
    with pytest.raises(Permanent) as refused:
        BlockBuilder(history, history.current, STREAM)
    assert refused.value.reason == reason
