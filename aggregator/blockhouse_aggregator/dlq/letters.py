"""What the records of a dead-letter topic mean: letters, marks that a letter was sent again, copies of either. Pure.

Delivery into the topic is at least once, so the key (stream, offset, topic id of the message) is its identity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.dead_letters import REPLAYED

Headers = tuple[tuple[str, bytes | None], ...]

_NAMES = ("stream", "offset", "reason", "table", "key", "timestamp", "omitted", "topicId", "detail")
STREAM, OFFSET, REASON, TABLE, KEY, TIMESTAMP, OMITTED, TOPIC_ID, DETAIL = (f"blockhouse.{name}" for name in _NAMES)
ORIGIN = "blockhouse.origin"
"""On a message that was sent again: the key of its letter, of the first one if it failed more than once."""
_OURS = frozenset({STREAM, OFFSET, REASON, TABLE, KEY, TIMESTAMP, OMITTED, TOPIC_ID, DETAIL})


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the topic as Kafka has it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that could not be loaded, as its producer sent it, `timestamp_ms` included.

    `topic_id` is that of the topic it was read from, empty in letters of older versions: in a topic created again under
    its name the same offsets are other messages. `copies` counts its records, `replayed` is where it was sent
    again, empty when it was not. `size` is the value's in bytes; the value itself is None where no one asked for it.
    `omitted` is what the topic had no room for; `detail` which column, row and value was refused, empty where that is
    not known.
    """

    key: str
    stream: StreamId
    offset: int
    reason: str
    table: str
    message_key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    size: int
    copies: int = 1
    replayed: str = ""
    omitted: str = ""
    topic_id: str = ""
    detail: str = ""

    @property
    def place(self) -> str:
        """Its key without the topic id."""
        return f"{self.stream}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Mark:
    """The letter `key` was sent again as `to`."""

    key: str
    to: str


def parse(record: Record) -> Letter | Mark | None:
    """What a record is; None for one that is not ours."""
    found = dict(record.headers)
    key = _text(record.key)
    if key and found.get(REPLAYED) is not None and STREAM not in found:
        return Mark(key, _text(found[REPLAYED]))
    own, ours = split(record.headers)
    try:
        stream, offset = StreamId.parse(_text(ours.get(STREAM))), int(_text(ours.get(OFFSET)))
        timestamp_ms = int(_text(ours[TIMESTAMP])) if TIMESTAMP in ours else record.timestamp_ms
    except ValueError:
        return None
    topic_id = _text(ours.get(TOPIC_ID))
    return Letter(
        key=f"{stream}/{offset}" + (f"@{topic_id}" if topic_id else ""),
        stream=stream,
        offset=offset,
        reason=_text(ours.get(REASON)),
        table=_text(ours.get(TABLE)),
        message_key=ours.get(KEY),
        value=record.value,
        headers=own,
        timestamp_ms=timestamp_ms,
        size=len(record.value or b""),
        omitted=_text(ours.get(OMITTED)),
        topic_id=topic_id,
        detail=_text(ours.get(DETAIL)),
    )


def split(headers: Headers) -> tuple[Headers, dict[str, bytes | None]]:
    """The message's own headers, and ours, which come last: a producer may use the same names."""
    ours: dict[str, bytes | None] = {}
    end = len(headers)
    while end and headers[end - 1][0] in _OURS and headers[end - 1][0] not in ours:
        end -= 1
        ours[headers[end][0]] = headers[end][1]
    return headers[:end], ours


def headers_again(letter: Letter) -> Headers:
    """Headers of the message when it is sent again: its own, and its origin."""
    if any(name == ORIGIN for name, _ in letter.headers):
        return letter.headers
    return (*letter.headers, (ORIGIN, letter.key.encode()))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which letters are selected; empty fields select all. Replayed ones only where `replayed` is true. `keys` may lack
    the topic id."""

    keys: frozenset[str] = frozenset()
    stream: str = ""
    table: str = ""
    reason: str = ""
    replayed: bool = False

    @property
    def named(self) -> bool:
        """Whether anything but everything is asked for."""
        return bool(self.keys or self.stream or self.table or self.reason)

    def wants(self, letter: Letter) -> bool:
        """Leaves out whether it was replayed: that is only known at the end of the topic."""
        return (
            (not self.keys or letter.key in self.keys or letter.place in self.keys)
            and (not self.stream or str(letter.stream) == self.stream)
            and (not self.table or letter.table == self.table)
            and (not self.reason or letter.reason == self.reason)
        )


@dataclass(slots=True)
class Collection:
    """The selected letters of a topic, each once; without values a letter takes about half a kilobyte."""

    selection: Selection
    values: bool = False
    foreign: int = 0
    _letters: dict[str, Letter] = field(default_factory=dict)
    _marks: dict[str, str] = field(default_factory=dict)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            match parse(record):
                case None:
                    self.foreign += 1
                case Mark(key=key, to=to):
                    self._marks[key] = to
                case Letter() as letter:
                    if not self.selection.wants(letter):
                        continue
                    known = self._letters.get(letter.key)
                    again = replace(known, copies=known.copies + 1) if known is not None else letter
                    self._letters[letter.key] = again if self.values else replace(again, value=None)

    def result(self) -> list[Letter]:
        """By stream and offset. A mark may come anywhere after its letter, so only the whole topic is enough to
        know."""
        marked = [replace(letter, replayed=self._marks.get(key, "")) for key, letter in self._letters.items()]
        selected = [letter for letter in marked if self.selection.replayed or not letter.replayed]
        return sorted(selected, key=lambda letter: (letter.stream, letter.offset))


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
