"""Where a scan ends: at a limit, when asked to finish, or when a stream that was behind has caught up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from blockhouse.config.pipeline import Blocks
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.collecting import DeadLetter
from blockhouse_aggregator.blocks.scan import Scanner
from blockhouse_aggregator.gate.messages import LettersWritten, Scan

TABLE = "default.t"
HISTORY = TableHistory(id=1, name=TABLE, revisions=(first_revision([ServerColumn(name="n", type="UInt32")]),))
MESSAGE: Any = row_batch_class(HISTORY, HISTORY.revisions[0], wide=True)
ROW = bytes(MESSAGE(rows=[{"n": 1}]).SerializeToString())


@dataclass(frozen=True)
class Sent:
    number: int
    body: bytes | None = ROW
    name: bytes = TABLE.encode()
    epoch: int | None = None

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes | None:
        return self.body

    def key(self) -> bytes | None:
        return None

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("table", self.name), ("schema", b"1")]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def leader_epoch(self) -> int | None:
        return self.epoch


class Log:
    """Gives the messages from its position, `at_once` of them a read, as a client does that has them in memory."""

    def __init__(self, *messages: Sent, at_once: int = 1000) -> None:
        self._messages = messages
        self._at_once = at_once
        self.position = 0
        self.epoch = -1
        self.log_end = messages[-1].number + 1

    def seek(self, offset: int, _leader_epoch: int | None = None) -> None:
        self.position = offset

    def read(self, _max_messages: int, _timeout: float) -> list[Sent]:
        found = [m for m in self._messages if m.number >= self.position][: self._at_once]
        self.position = found[-1].number + 1 if found else self.log_end
        return found


class Seconds:
    """A clock that a test sets; every look costs a millisecond, so that waiting ends."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def scanner(log: Log, buried: list[DeadLetter] | None = None, clock: Seconds | None = None) -> Scanner:
    def bury(letters: Sequence[DeadLetter]) -> None:
        (buried if buried is not None else []).extend(letters)

    stream = StreamId("a", "events", 0)
    return Scanner(stream, log, blocks=Blocks(), database="default", bury=bury, clock=clock or Seconds())


def order(start: int, *, max_bytes: int = 1 << 20, max_age: float = 0.0, seal_at_end: bool = False) -> Scan:
    return Scan(
        round=1,
        start=start,
        position=start,
        stop=None,
        resume={},
        exclude=(),
        catalog=(HISTORY,),
        max_bytes=max_bytes,
        max_rows=1000,
        entries=9,
        max_age=max_age,
        seal_at_end=seal_at_end,
        leader_epoch=-1,
        patience=0.1,
        max_seconds=20.0,
    )


def test_a_scan_asked_to_finish_before_it_has_read_leaves_what_was_put_back_to_the_next() -> None:
    # given a block that was full after the first of three messages
    scan = scanner(Log(Sent(0), Sent(1), Sent(2)))
    first, _ = scan.scan(order(0, max_bytes=len(ROW)), lambda: False)
    assert first.stop == 1
    # when the next scan has to finish at once
    hurried, blocks = scan.scan(order(1), lambda: True)
    # then it claims nothing: the messages are no holes
    assert (hurried.stop, blocks) == (1, [])
    _, blocks = scan.scan(order(1), lambda: False)
    assert [(b.begin, b.end, b.messages) for b in blocks] == [(1, 2, 2)]


def test_a_block_ends_with_the_message_that_fills_it() -> None:
    scan = scanner(Log(*(Sent(n) for n in range(10))))
    sealed, blocks = scan.scan(order(0, max_bytes=3 * len(ROW) - 1), lambda: False)
    assert (sealed.stop, blocks[0].end) == (3, 2)


def test_a_stream_that_was_behind_does_not_wait_for_the_age_of_its_blocks_once_it_has_caught_up() -> None:
    clock = Seconds()
    scan = scanner(Log(Sent(0), Sent(1)), clock=clock)
    sealed, blocks = scan.scan(order(0, max_age=10.0, seal_at_end=True), lambda: False)
    assert (sealed.stop, blocks[0].messages) == (2, 2)
    assert clock.now < 1


class GrowingLog(Log):
    """Another message is written with every read, as by producers that do not pause."""

    def read(self, max_messages: int, timeout: float) -> list[Sent]:
        found = super().read(max_messages, timeout)
        self._messages = (*self._messages, Sent(self.log_end))
        self.log_end += 1
        return found


def test_a_stream_that_was_behind_has_caught_up_with_the_end_that_its_first_answer_named() -> None:
    # given a log that grows while it is read, so that its end is never reached
    clock = Seconds()
    scan = scanner(GrowingLog(*(Sent(n) for n in range(4)), at_once=1), clock=clock)
    # when a stream that was behind is read
    sealed, blocks = scan.scan(order(0, max_age=10.0, seal_at_end=True), lambda: False)
    # then what came meanwhile is for the next round
    assert (sealed.stop, blocks[0].messages) == (5, 5)
    assert clock.now < 1


def test_a_stream_that_keeps_up_gathers_messages_for_the_age_of_its_blocks() -> None:
    clock = Seconds()
    scanner(Log(Sent(0), Sent(1)), clock=clock).scan(order(0), lambda: False)
    assert clock.now >= Blocks().max_age


def test_messages_that_came_while_blocks_were_inserted_have_aged_meanwhile() -> None:
    # given a scan that ended, and an insert of 0.7 seconds
    clock = Seconds()
    scan = scanner(Log(Sent(0), Sent(1), Sent(2)), clock=clock)
    scan.scan(order(0, max_bytes=len(ROW)), lambda: False)
    clock.now += 0.7
    # when the next scan finds messages at once
    begun = clock.now
    _, blocks = scan.scan(order(1), lambda: False)
    # then it waits only for the rest of their second
    assert blocks[0].messages == 2
    assert 0.25 < clock.now - begun < 0.35


class AskedLog(Log):
    """Has nothing at once after a seek, as a client that has to ask its broker first."""

    asked = True

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        super().seek(offset, leader_epoch)
        self.asked = False

    def read(self, max_messages: int, timeout: float) -> list[Sent]:
        if self.asked:
            return super().read(max_messages, timeout)
        self.asked = True
        return []


@pytest.mark.parametrize("log", [Log, AskedLog])
def test_messages_that_are_read_again_do_not_wait_for_their_age_again(log: type[Log]) -> None:
    # given a round that had to be dropped, as when its table was paused meanwhile, or of which a table is read again
    clock = Seconds()
    scan = scanner(log(Sent(0), Sent(1)), clock=clock)
    scan.scan(order(0, max_age=5.0), lambda: False)
    clock.now += 5.0
    # when it is read again
    begun = clock.now
    _, blocks = scan.scan(order(0, max_age=5.0), lambda: False)
    # then at once
    assert blocks[0].messages == 2
    assert clock.now - begun < 0.1


def test_a_table_that_was_left_behind_has_aged_since_then() -> None:
    # given a first scan after which the table was left behind, and a second one of five seconds without it
    clock = Seconds()
    scan = scanner(Log(Sent(0), Sent(1), Sent(2)), clock=clock)
    scan.scan(order(0, max_bytes=len(ROW), max_age=5.0), lambda: False)
    scan.scan(order(1, max_age=5.0), lambda: False)
    # when the next one takes it up from there
    begun = clock.now
    _, blocks = scan.scan(order(0, max_age=5.0), lambda: False)
    # then it does not wait for five more
    assert blocks[0].messages == 3
    assert clock.now - begun < 0.1


def test_messages_that_came_during_an_insert_have_aged_even_where_the_broker_has_to_be_asked_for_them() -> None:
    # given a client that could not fetch during an insert of five seconds
    clock, log = Seconds(), AskedLog(Sent(0), Sent(1), Sent(2))
    scan = scanner(log, clock=clock)
    scan.scan(order(0, max_bytes=len(ROW), max_age=5.0), lambda: False)
    clock.now += 5.0
    log.asked, log.position = False, 1
    scan._unused.clear()
    # when the next scan hears of them a moment after it began
    begun = clock.now
    _, blocks = scan.scan(order(1, max_age=5.0), lambda: False)
    # then they wait no other five
    assert blocks[0].messages == 2
    assert clock.now - begun < 0.1


def test_a_block_of_age_still_takes_everything_that_is_there() -> None:
    # given more messages than one read returns, and inserts that took longer than a block's age
    clock = Seconds()
    scan = scanner(Log(*(Sent(n) for n in range(9)), at_once=2), clock=clock)
    scan.scan(order(0, max_bytes=len(ROW)), lambda: False)
    clock.now += 5
    _, blocks = scan.scan(order(1), lambda: False)
    assert (blocks[0].begin, blocks[0].end) == (1, 8)


class FetchingLog(Log):
    """Has nothing at hand, as a client between two answers of its broker: what is waited for comes."""

    def read(self, max_messages: int, timeout: float) -> list[Sent]:
        return super().read(max_messages, timeout) if timeout > 0 else []


def test_a_block_of_age_waits_for_what_is_known_to_be_there() -> None:
    # given messages that have waited for longer than a block's age, and take several fetches
    clock = Seconds()
    scan = scanner(FetchingLog(*(Sent(n) for n in range(9)), at_once=2), clock=clock)
    scan.scan(order(0, max_bytes=len(ROW)), lambda: False)
    clock.now += 5
    _, blocks = scan.scan(order(1), lambda: False)
    assert (blocks[0].begin, blocks[0].end) == (1, 8)


def test_a_message_without_a_value_is_dead_and_its_neighbours_are_stored() -> None:
    buried: list[DeadLetter] = []
    scan = scanner(Log(Sent(0), Sent(1, body=None), Sent(2), Sent(3, body=None)), buried)
    sealed, blocks = scan.scan(order(0), lambda: False)
    assert [(b.begin, b.end, b.messages) for b in blocks] == [(0, 2, 2)]
    assert [(letter.message.offset(), letter.reason) for letter in buried] == [(1, "NullValue"), (3, "NullValue")]
    assert [(t.seen, t.dead) for t in sealed.tables] == [(4, 2)]


def test_messages_of_several_tables_in_turn_are_counted_with_their_table() -> None:
    other = b"default.unknown"
    scan = scanner(Log(Sent(0), Sent(1, name=other), Sent(2), Sent(3, name=other), Sent(4)))
    sealed, _ = scan.scan(order(0), lambda: False)
    assert [(t.table, t.seen, t.cursor) for t in sealed.tables] == [(TABLE, 3, None), ("default.unknown", 2, 1)]


def test_a_table_for_which_there_is_no_room_ends_the_range_before_its_first_message() -> None:
    scan = scanner(Log(Sent(0), Sent(1), Sent(5, name=b"default.unknown"), Sent(6)))
    sealed, blocks = scan.scan(order(0).model_copy(update={"entries": 1}), lambda: False)
    assert (sealed.stop, blocks[0].messages) == (5, 2)


def test_a_range_is_sealed_with_the_leader_epoch_of_its_end() -> None:
    # given a log whose end the reader knows to be of epoch 7, behind a message of epoch 5
    log = Log(Sent(0, epoch=5), Sent(1, epoch=5))
    log.epoch = 7
    scan = scanner(log)
    # when the range ends where the reader is
    sealed, _ = scan.scan(order(0), lambda: False)
    # then a marker of a later epoch may lie there: it is the position's that counts
    assert (sealed.stop, sealed.leader_epoch) == (2, 7)


def test_a_range_that_ends_before_a_message_is_sealed_with_that_messages_epoch() -> None:
    log = Log(Sent(0, epoch=5), Sent(1, epoch=6), Sent(2, epoch=7))
    log.epoch = 8
    sealed, _ = scanner(log).scan(order(0, max_bytes=1), lambda: False)
    assert (sealed.stop, sealed.leader_epoch) == (1, 6)


def test_a_dead_letter_names_what_was_refused_and_is_reported_with_it() -> None:
    beyond = bytes(MESSAGE(rows=[{"n": 1}, {"n": 1 << 40}]).SerializeToString())
    buried: list[DeadLetter] = []
    log = Log(Sent(0), Sent(1, body=None), Sent(2, body=beyond), Sent(3), Sent(4, body=beyond))

    sealed, _ = scanner(log, buried).scan(order(0), lambda: False)

    detail = f"column n (UInt32), row 2: {1 << 40}"
    assert {letter.message.offset(): letter.detail for letter in buried} == {1: "", 2: detail, 4: detail}
    assert sealed.letters == (
        LettersWritten(table=TABLE, reason="NullValue", count=1, offset=1, detail=""),
        LettersWritten(table=TABLE, reason="OutOfRange", count=2, offset=2, detail=detail),
    )
