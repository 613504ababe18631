"""Any history of eBay's aggregator, stopped anywhere: after the takeover each message is stored or will be, once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blockhouse.metadata.invariants import violations
from blockhouse_aggregator.protocol.foreign import ForeignTable, Survey, Surveyed, adopt, bounds
from blockhouse_aggregator.runtime.ports import TableCount
from blockhouse_aggregator.runtime.stream.survey import count_messages

NOW = 1_700_000_000_000
NAMES = ("t.a", "t.b", "t.c")


class Message:
    def __init__(self, offset: int, table: str) -> None:
        self._offset, self._table = offset, table

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return b""

    def key(self) -> bytes | None:
        return None

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return [("table", self._table.encode())] if self._table else None

    def timestamp(self) -> tuple[int, int]:
        return 1, NOW - 1000 + self._offset


class Log:
    """The reader of a log; `-` is a hole, which only moves the position."""

    def __init__(self, letters: str, start: int) -> None:
        self._letters = letters
        self.position = start

    def read(self, max_messages: int, timeout: float) -> list[Message]:
        found: list[Message] = []
        while self.position < len(self._letters) and len(found) < 3:
            letter = self._letters[self.position]
            if letter != "-":
                found.append(Message(self.position, "" if letter == "!" else f"t.{letter}"))
            self.position += 1
        return found


class Route:
    def __init__(self, table: str) -> None:
        self.table = table


class Router:
    def route(self, headers: object) -> Route:
        assert not headers or isinstance(headers, list)
        return Route(headers[0][1].decode() if headers else "")


@given(
    letters=st.text("abc-!", min_size=1, max_size=30),
    consumed=st.integers(1, 30),
    flushes=st.dictionaries(st.sampled_from(NAMES), st.tuples(st.integers(0, 30), st.integers(0, 30))),
)
def test_every_message_is_stored_in_flight_pending_or_above_the_position(
    letters: str, consumed: int, flushes: dict[str, tuple[int, int]]
) -> None:
    """The other aggregator has consumed a prefix. Of each table it saw, the first some messages are stored, the next
    some are the block it committed last; the rest waits in its buffer."""
    consumed = min(consumed, len(letters))
    state: dict[str, tuple[int, int]] = {}
    stored: dict[str, list[int]] = {}
    block: dict[str, list[int]] = {}
    for name in NAMES:
        offsets = [o for o in range(consumed) if f"t.{letters[o]}" == name]
        if not offsets:
            continue
        done, sent = flushes.get(name, (0, 0))
        stored[name], block[name] = offsets[:done], offsets[done : done + sent]
        if block[name]:
            state[name] = block[name][0], block[name][-1]
        elif stored[name] == offsets:
            state[name] = consumed, consumed - 1
        else:
            state[name] = offsets[done], offsets[done] - 1
    ids = {name: number for number, name in enumerate(NAMES, start=1)}
    tables = tuple(ForeignTable(ids[name], *found, revision=1) for name, found in state.items())
    offset = min((begin for begin, _ in state.values()), default=consumed)

    start, stop = bounds(offset, tables, log_begin=0)
    counts: dict[str, TableCount] = count_messages(Log(letters, start), Router(), state, start, stop)  # type: ignore[arg-type]
    seen = tuple(Surveyed(ids[n], c.stored, c.inside, c.beyond, c.first_beyond, c.oldest_ms) for n, c in counts.items())
    metadata = adopt(tables, Survey(start, stop, seen), topic_id="T", seq=0, now_ms=NOW)

    assert violations(metadata) == []
    entries = {entry.table: entry for entry in metadata.tables}
    for name in NAMES:
        entry = entries.get(ids[name])
        in_flight = entry.in_flight if entry is not None else None
        cursor = entry.cursor if entry is not None and entry.cursor is not None else metadata.position
        for at in (o for o in range(len(letters)) if f"t.{letters[o]}" == name):
            inside = in_flight is not None and in_flight.begin <= at <= in_flight.end
            assert inside == (at in block.get(name, [])), f"{name} {at}"
            assert (at >= cursor) == (at not in stored.get(name, []) and not inside), f"{name} {at}"
        if in_flight is not None:
            assert in_flight.messages == len(block[name])
