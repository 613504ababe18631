"""What a worker keeps of a table from block to block never outlives the description of the table that it received."""

from __future__ import annotations

from typing import Any

from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.collecting import Catalog
from blockhouse_aggregator.wire.formats import decoder

STREAM = StreamId("a", "events-0", 0)


def table(type_: str) -> TableHistory:
    return TableHistory(id=1, name="db.t", revisions=(first_revision([ServerColumn(name="n", type=type_)]),))


def reasons(catalog: Catalog, number: int) -> list[str]:
    batch: Any = row_batch_class(table("UInt64"), table("UInt64").revisions[0])(rows=[{"n": number}])
    builder = catalog.builder("db.t", None, STREAM)
    assert builder is not None
    builder.append(0, batch.SerializeToString(), 1)
    return [dead.reason for dead in builder.seal(10).dead]


def test_a_decoder_is_built_once_for_many_blocks_and_again_when_the_table_is_another() -> None:
    catalog, made = Catalog(), []

    def counted(*given: Any) -> Any:
        made.append(given)
        return decoder(*given)

    # given a worker that has decoded blocks of a table
    catalog.learn((table("UInt8"),))
    assert [reasons(catalog, 255), reasons(catalog, 256)] == [[], ["OutOfRange"]]
    first = catalog.builder("db.t", None, STREAM)
    second = catalog.builder("db.t", None, STREAM)
    assert first is not None
    assert second is not None
    assert first._decoders == second._decoders
    # when it receives the same description again, nothing is built; when something else, everything
    catalog.learn((table("UInt8"),))
    third = catalog.builder("db.t", None, STREAM)
    assert third is not None
    assert third._decoders == first._decoders
    catalog.learn((table("UInt16"),))
    assert [reasons(catalog, 256), reasons(catalog, 1 << 16)] == [[], ["OutOfRange"]]
    # and decoders of another kind are neither kept nor replaced by kept ones
    catalog.make = counted
    reasons(catalog, 1)
    reasons(catalog, 1)
    assert len(made) == 2
