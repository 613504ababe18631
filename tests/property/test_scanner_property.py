"""Whatever the limits, lagging tables and failures: every message of a log ends in exactly one block, and any block can
be rebuilt byte by byte. The real scanner, decoder and protocol on a log in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from blockhouse.config.pipeline import Blocks
from blockhouse.metadata.invariants import succession_violations, violations
from blockhouse.metadata.model import Window
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import EncodedBlock
from blockhouse_aggregator.blocks.collecting import DeadLetter
from blockhouse_aggregator.blocks.scan import Scanner
from blockhouse_aggregator.gate.messages import Replay, ReplayBlock, Scan
from blockhouse_aggregator.protocol import schedule
from blockhouse_aggregator.protocol.events import CommitSucceeded, Insert, InsertFailed, Rebuilt, Scanned, Stored
from blockhouse_aggregator.protocol.invariants import grant_violations
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.protocol.step import step
from blockhouse_aggregator.runtime.stream.translate import scan_report, sealed_block

STREAM = StreamId("a", "events", 0)
NAMES = ("default.t1", "default.t2", "default.t3")
COLUMNS = [ServerColumn(name="n", type="UInt32"), ServerColumn(name="_kafka_offset", type="UInt64")]
HISTORIES = {
    name: TableHistory(id=i, name=name, revisions=(first_revision(COLUMNS),)) for i, name in enumerate(NAMES, start=1)
}
IDS = {name: history.id for name, history in HISTORIES.items()}
BATCH = row_batch_class(HISTORIES[NAMES[0]], HISTORIES[NAMES[0]].revisions[0])


@dataclass(frozen=True)
class LogMessage:
    """A message of the log in memory."""

    number: int
    table: str | None
    body: bytes | None

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes | None:
        return self.body

    def key(self) -> bytes | None:
        return None

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return [("table", self.table.encode()), ("schema", b"1")] if self.table else None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000 + self.number

    def leader_epoch(self) -> int | None:
        return None


class LogReader:
    """Reads the log in batches of changing size; its position passes holes as the real reader's does."""

    def __init__(self, log: Sequence[LogMessage], end: int) -> None:
        self._log = log
        self._end = end
        self._batch = 0
        self.position = 0
        self.epoch = -1
        self.log_end = end

    def seek(self, offset: int, _leader_epoch: int | None = None) -> None:
        self.position = offset

    def read(self, max_messages: int, _timeout: float) -> list[LogMessage]:
        self._batch += 1
        rest = [m for m in self._log if m.number >= self.position]
        batch = rest[: min(max_messages, 1 + self._batch * 7 % 5)]
        self.position = batch[-1].number + 1 if batch and len(batch) < len(rest) else self._end
        return batch


class Ticks:
    """A clock that moves a little whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def encoded(rows: int, seed: int) -> bytes:
    batch = BATCH()
    for i in range(rows):
        batch.rows.add(n=seed * 100 + i)
    return bytes(batch.SerializeToString())


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[LogMessage], int]:
    """A log with holes, bad messages and messages without a table; and its end."""
    kinds = draw(st.lists(st.sampled_from([*NAMES, *NAMES, "hole", "headless", "null", "garbage"]), max_size=40))
    log = []
    for offset, kind in enumerate(kinds):
        if kind == "headless":
            log.append(LogMessage(offset, None, b"x"))
        elif kind == "null":
            log.append(LogMessage(offset, NAMES[0], None))
        elif kind == "garbage":
            log.append(LogMessage(offset, NAMES[1], b"\xff\xff\xff"))
        elif kind != "hole":
            log.append(LogMessage(offset, kind, encoded(1 + offset % 3, offset)))
    return log, len(kinds)


@dataclass(frozen=True)
class Choice:
    """What happens in one step: limits of the scan, who lags, and which inserts fail."""

    max_bytes: int
    max_rows: int
    entries: int
    skipped: frozenset[int]
    failing: frozenset[int]
    catch_up: bool


choices = st.builds(
    Choice,
    max_bytes=st.integers(1, 80),
    max_rows=st.integers(1, 20),
    entries=st.integers(1, 4),
    skipped=st.frozensets(st.sampled_from([1, 2, 3]), max_size=2),
    failing=st.frozensets(st.sampled_from([1, 2, 3]), max_size=2),
    catch_up=st.booleans(),
)
FREE = Choice(1 << 20, 1000, 9, frozenset(), frozenset(), False)


class World:
    """One owner with its worker on the log in memory."""

    def __init__(self, log: list[LogMessage], end: int) -> None:
        self.end = end
        self.buried: list[int] = []
        self.stored: dict[int, list[EncodedBlock]] = {1: [], 2: [], 3: []}
        self.bodies: dict[tuple[int, int, int], EncodedBlock] = {}
        self.state = StreamState("r1", 1, "id", -1, 0, 0, Window(), 0)
        self.scanner = Scanner(
            STREAM, LogReader(log, end), blocks=Blocks(), database="default", bury=self._bury, clock=Ticks()
        )

    def _bury(self, letters: Sequence[DeadLetter]) -> None:
        self.buried += [letter.message.offset() for letter in letters]

    def turn(self, choice: Choice) -> None:
        replay = schedule.replays(self.state, frozenset(t.table for t in self.state.in_flight))
        if replay is not None:
            self._replay(replay, choice)
            return
        request = schedule.scan(self.state, skipped=choice.skipped, near=5, catch_up=choice.catch_up)
        order = Scan(
            round=1,
            start=request.start,
            position=request.position,
            stop=request.stop,
            resume={NAMES[t - 1]: cursor for t, cursor in request.resume},
            exclude=tuple(NAMES[t - 1] for t in request.exclude),
            catalog=tuple(HISTORIES.values()),
            max_bytes=choice.max_bytes,
            max_rows=choice.max_rows,
            entries=choice.entries,
            leader_epoch=-1,
            patience=0.1,
            max_seconds=1.0,
        )
        sealed, blocks = self.scanner.scan(order, lambda: False)
        for block in blocks:
            self.bodies[IDS[block.table], block.begin, block.end] = block
        before = self.state.recorded
        self.state, effects = step(
            self.state, Scanned(scan_report(sealed, IDS), frozenset(t for t, _ in request.resume)), 1
        )
        assert not self.state.closed, effects
        if self.state.committing is not None:
            metadata = self.state.committing
            assert not violations(metadata)
            assert not succession_violations(before, metadata)
            self.state, effects = step(self.state, CommitSucceeded(metadata.seq), 1)
            self._insert(effects, choice)

    def _replay(self, replay: schedule.ReplayRequest, choice: Choice) -> None:
        wishes = tuple(
            ReplayBlock(table=NAMES[t - 1], begin=i.begin, end=i.end, revision=i.revision) for t, i in replay.blocks
        )
        answer, built = self.scanner.replay(Replay(round=1, blocks=wishes), lambda: False)
        assert not answer.missing
        for described, (block, _) in zip(answer.blocks, built, strict=True):
            original = self.bodies[IDS[block.table], block.begin, block.end]
            assert block == original
            self.state, effects = step(self.state, Rebuilt(IDS[block.table], sealed_block(described)), 1)
            self._insert(effects, choice)

    def _insert(self, effects: Sequence[object], choice: Choice) -> None:
        grants = [effect for effect in effects if isinstance(effect, Insert)]
        assert not grant_violations(self.state, grants)
        for grant in grants:
            key = (grant.table, grant.intent.begin, grant.intent.end)
            if grant.table in choice.failing:
                self.state, _ = step(self.state, InsertFailed(*key), 1)
            else:
                self.stored[grant.table].append(self.bodies[key])
                self.state, _ = step(self.state, Stored(*key), 1)

    @property
    def finished(self) -> bool:
        return self.state.position >= self.end and not self.state.tables


@settings(max_examples=1000, deadline=None)
@given(log=logs(), turns=st.lists(choices, max_size=25))
def test_every_message_ends_in_exactly_one_block_or_is_buried(
    log: tuple[list[LogMessage], int], turns: list[Choice]
) -> None:
    messages, end = log
    world = World(messages, end)
    for choice in turns:
        world.turn(choice)
    for _ in range(3 * end + 5):
        if world.finished:
            break
        world.turn(replace(FREE, catch_up=schedule.has_far(world.state, skipped=frozenset(), near=5)))
    assert world.finished, world.state

    for name, table in IDS.items():
        blocks = sorted(world.stored[table], key=lambda block: block.begin)
        assert all(a.end < b.begin for a, b in pairwise(blocks)), "blocks overlap"
        good = [m.number for m in messages if m.table == name and m.body not in (None, b"\xff\xff\xff")]
        covered = [o for o in good if any(b.begin <= o <= b.end for b in blocks)]
        assert covered == good
        assert sum(b.messages for b in blocks) == len(good)
    bad = {m.number for m in messages if m.table is None or m.body in (None, b"\xff\xff\xff")}
    assert set(world.buried) == bad
    window = world.state.window
    assert window.sealed == len(messages) - len(bad)
    assert (window.dead, window.holes) == (len(bad), end - len(messages))


def test_a_full_table_ends_the_round_and_the_rest_is_kept_for_the_next() -> None:
    log = [LogMessage(i, NAMES[0], encoded(1, i)) for i in range(10)]
    world = World(log, 10)

    world.turn(replace(FREE, max_bytes=3 * len(encoded(1, 1))))

    (block,) = world.stored[1]
    assert (block.begin, block.end) == (0, 2)
    assert world.state.position == 3
