"""How the value for which a message is refused is shown to people: its column, its row, and the beginning of it.

The text goes into logs and headers. Must never hold a whole large value, nor any of a column that by its name holds
secrets, and must not take longer for a large value than for a small one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

MOST = 64
"""Characters that are shown of a value, or of a name, which may be the sender's."""
_ITEMS = 4
"""Elements of a list that are shown."""
_BYTES = 4 * MOST
HIDDEN = "not shown, for its name speaks of a secret"
_SECRET = re.compile(r"passw|passphrase|secret|token|credential|(api|private|access)_?key", re.IGNORECASE)


def refused(column: str, row: int, value: object, declared: str = "") -> str:
    """`column NAME (TYPE), row N: VALUE`; `row` counts the rows of the message from 0, the text from 1."""
    of_type = f" ({declared})" if declared else ""
    return f"column {_cut(column)}{of_type}, row {row + 1}: {shown(column, value)}"


def unnamed(value: object) -> str:
    """In place of a value of which only the number of its field is known: no name shows whether it is a secret."""
    size = f"a value of length {len(value)}" if isinstance(value, bytes) else "a value"
    return f"{size}, not shown, for the field has no name here"


def shown(column: str, value: object) -> str:
    """The beginning of a value as JSON; bytes that are no text as hexadecimal digits."""
    if _SECRET.search(column):
        return HIDDEN
    return _cut(_written(beginning(value)))


def _cut(text: str) -> str:
    return text if len(text) <= MOST else text[:MOST] + " ..."


def beginning(value: object) -> object:
    """As much of a value as may be shown, as Python has it."""
    match value:
        case pa.ListScalar():
            return _cut_list(value.values) if value.is_valid else None
        case pa.StructScalar():
            return (
                _without_secret({name: beginning(member) for name, member in value.items()}) if value.is_valid else None
            )
        case pa.BinaryScalar() | pa.StringScalar() | pa.LargeBinaryScalar() | pa.LargeStringScalar():
            return _text(value.as_buffer()[:_BYTES].to_pybytes()) if value.is_valid else None
        case pa.Scalar():
            return value.as_py()
        case bytes():
            return _text(value[:_BYTES])
        case str():
            return value[:_BYTES]
        case Mapping():
            return {
                str(name)[:MOST]: HIDDEN if _SECRET.search(str(name)) else beginning(value[name])
                for name in list(value)[:_ITEMS]
            }
        case Sequence():
            return _cut_list(value)
        case _:  # open: numbers and the like, which are short
            return value


def _without_secret(members: dict[str, object]) -> dict[str, object]:
    """The members of a Tuple or of a Map's entry, whose key may speak of a secret."""
    hidden = members.keys() == {"key", "value"} and _SECRET.search(str(members["key"]))
    return {**members, "value": HIDDEN} if hidden else members


def _cut_list(items: Sequence[object] | pa.Array) -> list[object]:
    found = [beginning(items[at]) for at in range(min(len(items), _ITEMS))]
    return [*found, f"{len(items)} elements"] if len(items) > _ITEMS else found


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        if len(value) == _BYTES and error.start > _BYTES - 4:  # a character was cut
            return value[: error.start].decode()
        return f"0x{value.hex()}"


def _written(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else json.dumps(value, default=str)
