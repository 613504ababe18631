"""The formats of messages by their name in the `format` header: one module each, all with the same `Decoder`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from blockhouse.schema.model import Revision, TableHistory
from blockhouse_aggregator.wire.batch import Decoder
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.json_lines import JsonDecoder
from blockhouse_aggregator.wire.nucolumnar import NucolumnarDecoder
from blockhouse_aggregator.wire.rows import RowsDecoder


class Format(StrEnum):
    """The values of the `format` header."""

    ROWS = "rows"
    NUCOLUMNAR = "nucolumnar"
    JSON = "json"

    @property
    def needs_schema(self) -> bool:
        """Whether a message means nothing without the revision it was written for: the others name their columns."""
        return self is Format.ROWS


_DECODERS: Mapping[Format, Callable[[TableHistory, Revision, Evaluate | None], Decoder]] = {
    Format.ROWS: RowsDecoder,
    Format.NUCOLUMNAR: NucolumnarDecoder,
    Format.JSON: JsonDecoder,
}


MakeDecoder = Callable[[Format, TableHistory, Revision, Evaluate | None], Decoder]
"""`decoder`, or something in its place."""


def decoder(form: Format, table: TableHistory, revision: Revision, evaluate: Evaluate | None) -> Decoder:
    """Raises Permanent (UnsupportedType, UnsupportedDefault, NoColumns) when the table cannot be loaded."""
    return _DECODERS[form](table, revision, evaluate)
