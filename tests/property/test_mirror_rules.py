"""What holds for every mirror: no history of grants and crashes loses or doubles a record, and figures agree."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from blockhouse.placement.model import TopicPartition
from blockhouse_mirror.protocol import position as codec
from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.protocol.lag import KEPT, Lateness
from blockhouse_mirror.protocol.ownership import GRANT_SECONDS, WIRE_SECONDS, Ownership
from blockhouse_mirror.protocol.position import Holder, Position
from blockhouse_mirror.protocol.progress import Progress, Run
from blockhouse_mirror.protocol.provenance import AFTER, Origin, origin_format
from blockhouse_mirror.protocol.takeover import Log, Start, Stop, after_tail, decide

FORMAT = origin_format("S", "t", 0)


class Histories(RuleBasedStateMachine):
    """One partition of a source that grows by records, holes and records that came from the target; tasks that follow
    each other, each ended at any moment with any part of what it had sent on the target; positions written at any
    moment, and a target whose retention takes from its begin."""

    def __init__(self) -> None:
        super().__init__()
        self.source = ""
        self.log: list[bytes] = []
        self.begin = 0
        self.copied: list[int] = []
        self.stored = Position("S", "t", 0, 0, -1, "u", 0)
        self.wire: list[tuple[int, bytes, bool]] = []
        self.start_task()

    def start_task(self) -> None:
        position = codec.decode(self.stored.tail, codec.encode(self.stored))
        decided = decide(
            position, Log("S", "t", 0, len(self.source)), Log("T", "u", self.begin, len(self.log)), skip=False
        )
        assert isinstance(decided, Start)
        tail = [origin for value in self.log[max(decided.tail, self.begin) :] if (origin := provenance.decode(value))]
        offset = after_tail(decided.offset, tail, cut=decided.tail < self.begin)
        self.progress = Progress(offset, -1, len(self.log))
        self.wire = []

    @rule(more=st.text("r.x", min_size=1, max_size=4))
    def source_grows(self, more: str) -> None:
        self.source += more

    @rule(count=st.integers(1, 6), most=st.integers(1, 3))
    def task_reads(self, count: int, most: int) -> None:
        """At most so many records are a run, of which the last one alone is acknowledged."""
        run = list[int]()
        for _ in range(count):
            offset = run[-1] + 1 if run else self.progress.read
            if offset == len(self.source):
                break
            if self.source[offset] != "r" or len(run) == most:
                self.send(run)
                run = []
            match self.source[offset]:
                case "r":
                    run.append(offset)
                case "x":
                    self.progress.leave_out(offset)
                case _:
                    self.progress.advance(offset + 1)
        self.send(run)

    def send(self, run: list[int]) -> None:
        after = self.progress.after
        for offset in run:
            self.wire.append((offset, FORMAT % offset + AFTER % after, offset == run[-1]))
            after = offset + 1
        if run:
            self.progress.sent(Run(run[0], run[-1], len(run), len(run), 0, 0))

    @precondition(lambda self: self.wire)
    @rule(count=st.integers(1, 4))
    def broker_acknowledges(self, count: int) -> None:
        for _ in range(min(count, len(self.wire))):
            if self.append():
                self.progress.acknowledged(len(self.log) - 1)

    def append(self) -> bool:
        """Whether the task hears of it."""
        offset, header, reports = self.wire.pop(0)
        self.log.append(header)
        self.copied.append(offset)
        return reports

    @rule()
    def position_is_written(self) -> None:
        progress = self.progress
        self.stored = self.stored.at(progress.position, progress.epoch, progress.tail, Holder.GRANTED)

    @rule(arrives=st.integers(0, 10))
    def task_dies(self, arrives: int) -> None:
        """Some of what is on the wire still arrives, in order, and is acknowledged to a process that is gone."""
        for _ in range(min(arrives, len(self.wire))):
            self.append()
        self.start_task()

    @precondition(lambda self: self.progress.settled)
    @rule()
    def task_is_handed_over(self) -> None:
        self.position_is_written()
        self.start_task()

    @rule(share=st.integers(1, 4))
    def retention_of_the_target(self, share: int) -> None:
        """Only of what a written position covers: more is a mirror that stood still for the whole retention."""
        self.begin = max(self.begin, self.stored.tail // share)

    @invariant()
    def nothing_is_doubled_or_out_of_order(self) -> None:
        assert self.copied == sorted(set(self.copied))

    @invariant()
    def no_position_passes_a_record_that_is_not_on_the_target(self) -> None:
        for offset in (self.progress.position, self.stored.offset):
            assert {at for at, kind in enumerate(self.source[:offset]) if kind == "r"} <= set(self.copied)

    @invariant()
    def the_tail_has_every_record_above_the_position(self) -> None:
        above = [at for at, offset in enumerate(self.copied) if offset >= self.stored.offset]
        assert all(at >= self.stored.tail for at in above)

    def teardown(self) -> None:
        """Whatever happened: in the end everything is there."""
        self.task_reads(len(self.source), 3)
        self.broker_acknowledges(len(self.wire)) if self.wire else None
        assert self.copied == [at for at, kind in enumerate(self.source) if kind == "r"]
        assert self.progress.position == len(self.source)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

KEYS = [TopicPartition("t", number) for number in range(3)]
TASKS = ("a", "b", "c")


class Grants(RuleBasedStateMachine):
    """A driver that follows `Ownership`, and tasks of which any may vanish: each may write until its grant has ended
    and its last bytes have arrived, which is longer than the driver knows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ownership = Ownership()
        self.running = set(TASKS)
        self.writers: dict[TopicPartition, list[tuple[str, int, float | None]]] = {key: [] for key in KEYS}
        self.generation = 0

    @rule(seconds=st.floats(0.1, 20))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(owners=st.lists(st.sampled_from((*TASKS, None)), min_size=3, max_size=3))
    def driver_looks(self, owners: list[str | None]) -> None:
        desired = {key: owner for key, owner in zip(KEYS, owners, strict=True) if owner}
        changes = self.ownership.changes(desired, self.running, self.now)
        for key, _ in changes.revoke:
            self.ownership.ending(key)
        for key, task in changes.grant:
            assert task in self.running
            for _, _, until in self.writers[key]:
                assert until is not None, "M3: another one has a grant"
                assert until <= self.now, "M3: another one may still be writing"
            grant = self.ownership.granted(key, task)
            assert grant.generation > self.generation
            self.generation = grant.generation
            self.writers[key] = [(task, grant.generation, None)]

    @rule(key=st.sampled_from(KEYS))
    def task_confirms(self, key: TopicPartition) -> None:
        grant = self.ownership.holder(key)
        if grant is not None and grant.ending:
            assert self.ownership.confirmed(key, grant.generation)
            self.writers[key] = []

    @rule(key=st.sampled_from(KEYS), older=st.integers(1, 5))
    def late_answer(self, key: TopicPartition, older: int) -> None:
        held = self.ownership.holder(key)
        assert not self.ownership.confirmed(key, (held.generation if held else self.generation) - older)
        assert self.ownership.holder(key) == held

    @rule(task=st.sampled_from(TASKS))
    def task_is_lost(self, task: str) -> None:
        self.running.discard(task)
        self.ownership.lost(task, self.now)
        over = self.now + GRANT_SECONDS + WIRE_SECONDS
        for key, writers in self.writers.items():
            self.writers[key] = [(t, g, over if t == task and until is None else until) for t, g, until in writers]

    @rule(task=st.sampled_from(TASKS))
    def task_returns(self, task: str) -> None:
        self.running.add(task)


TestGrants = Grants.TestCase
TestGrants.settings = settings(max_examples=150, deadline=None)


names = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", min_size=1, max_size=22)
offsets = st.integers(0, (1 << 63) - 1)


@given(names, names, offsets, offsets, st.integers(-1, (1 << 31) - 1), names, offsets, st.sampled_from(Holder))
def test_any_position_is_read_as_it_was_written(
    cluster: str, topic: str, start: int, offset: int, epoch: int, target: str, tail: int, holder: Holder
) -> None:
    position = Position(cluster, topic, start, offset, epoch, target, tail, holder)

    assert codec.decode(tail, codec.encode(position)) == position


@given(names, names, st.integers(0, 1 << 31), offsets, offsets)
def test_any_origin_is_read_as_it_was_written(
    cluster: str, topic: str, partition: int, offset: int, after: int
) -> None:
    header = origin_format(cluster, topic, partition) % offset

    assert provenance.decode(header) == Origin(cluster, topic, partition, offset, offset)
    assert provenance.decode(header + AFTER % after) == Origin(cluster, topic, partition, offset, after)


@given(st.binary(max_size=80))
def test_no_header_is_an_error(value: bytes) -> None:
    provenance.decode(value)
    provenance.came_from([(provenance.HEADER, value)], "S")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20), st.integers(0, 30), st.booleans())
def test_a_tail_leads_only_forward_and_only_to_behind_one_of_its_records(
    links: list[tuple[int, int]], start: int, cut: bool
) -> None:
    tail = [Origin("S", "t", 0, offset, after) for offset, after in links]

    found = after_tail(start, tail, cut=cut)

    assert found == start or (found > start and found - 1 in {origin.offset for origin in tail})


bounds = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted)


@given(st.integers(0, 40), st.integers(0, 40), bounds, bounds, st.booleans(), st.sampled_from("tx"), st.booleans())
def test_nothing_is_passed_without_a_gap_being_named(
    offset: int, tail: int, source: list[int], target: list[int], same: bool, topic: str, skip: bool
) -> None:
    position = Position("S", "t", 0, offset, -1, "u", tail)

    found = decide(position, Log("S", topic, *source), Log("T", "u" if same else "v", *target), skip=skip)

    whole = topic == "t" and same and source[0] <= offset <= source[1] and tail <= target[1]
    assert (found == Start(offset, -1, tail)) == whole
    if isinstance(found, Start):
        assert source[0] <= found.offset <= source[1], "it can be read from there"
        assert (found.gap is None) == whole
        assert whole or skip
    else:
        assert isinstance(found, Stop)
        assert not skip


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 5), st.integers(0, 6)), max_size=KEPT - 1))
def test_lateness_is_since_the_end_was_first_seen_behind_the_position(steps: list[tuple[float, int, int]]) -> None:
    lateness, now, end, position = Lateness(), 0.0, 0, 0
    lateness.reached(0)
    seen: list[tuple[float, int]] = []
    for seconds, grown, mirrored in steps:
        now, end = now + seconds, end + grown
        lateness.seen(now, end)
        seen.append((now, end))
        position = min(end, position + mirrored)
        lateness.reached(position)

        behind = [moment for moment, ended in seen if ended > position]
        assert lateness.seconds(now) == (now - min(behind) if behind else 0.0)
        assert lateness.records() == end - position
