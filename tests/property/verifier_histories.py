"""Legal histories of one stream, as its commits lie in the offsets topic: made by the product's own protocol code.

Owners scan, commit, crash, take over, close windows; retention moves the log's begin; topics are created again; the
offsets topic is compacted. Every history is a pure function of its seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata
from blockhouse_aggregator.protocol.events import (
    CommitRefused,
    CommitSucceeded,
    Event,
    Flush,
    InsertFailed,
    Rebuilt,
    Scanned,
    Stored,
)
from blockhouse_aggregator.protocol.schedule import replays, scan
from blockhouse_aggregator.protocol.state import Stage, StreamState
from blockhouse_aggregator.protocol.step import step
from blockhouse_aggregator.protocol.takeover import Facts, Start, take_over
from tests.protocol_model import log as model_log
from tests.protocol_model.log import Log
from tests.protocol_model.wander import wander


@dataclass(frozen=True, slots=True)
class Commit:
    """A record of the offsets topic, `missing` records before it are gone; `log_begin`: of the stream's log by then."""

    metadata: Metadata
    missing: int = 0
    log_begin: int = 0

    @property
    def text(self) -> str:
        return codec.encode(self.metadata)

    @property
    def offset(self) -> int:
        return self.metadata.committed_offset


History = Sequence[Commit]


def of_model(seed: int) -> History:
    """What a walk of the protocol model has committed: several owners, unknown fates, zombies."""
    walk = wander(seed)
    seen: list[Metadata] = []
    for _, world in walk.story:
        metadata = world.group.metadata
        if metadata is not None and (not seen or metadata is not seen[-1]):
            seen.append(metadata)
    return tuple(map(Commit, seen))


def of_owners(seed: int) -> History:
    """What a line of owners has committed, with retention and topics that are created again."""
    stream = _Stream(Random(seed))
    stream.live(stream.random.randint(5, 60))
    return tuple(stream.commits)


def worn(history: History, random: Random) -> History:
    """The same as the offsets topic may show it: commits repeated by the client, the beginning compacted, records of
    no owner in between."""
    commits: list[Commit] = []
    for commit in history:
        again = random.choice([1, 1, 1, 2])
        commits += [commit] * again
    if random.random() < 0.5 and len(commits) > 1:
        commits = _compacted(commits, random)
    return tuple(replace(commit, missing=commit.missing + random.choice([0, 0, 2])) for commit in commits)


def _compacted(commits: list[Commit], random: Random) -> list[Commit]:
    """Of the oldest ones only some are left: the cleaner keeps the last of each segment it cleans at least."""
    clean = random.randint(1, len(commits) - 1)
    kept: list[Commit] = []
    gone = 0
    for number, commit in enumerate(commits):
        if number < clean and random.random() < 0.7:
            gone += 1
            continue
        kept.append(replace(commit, missing=gone))
        gone = 0
    return kept


class _Stream:
    """One stream and its owners."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.commits: list[Commit] = []
        self.log_begin = 0
        self._topic = 0
        self._now = 1_000
        self._owner: StreamState | None = None
        self._text = ""
        self._new_log()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self._now += self.random.randint(1, 500)
            if self._owner is None or self._owner.closed:
                self._assign()
            self.random.choices(
                [self._scan, self._answer, self._flush, self._crash, self._retain, self._recreate],
                weights=[10, 12, 4, 2, 1, 0.3],
            )[0]()

    def _new_log(self) -> None:
        self._topic += 1
        self._text = "".join(self.random.choices("ABCDabc!-", weights=[9, 6, 3, 2, 1, 1, 1, 1, 2], k=80)) + "A"
        self.log_begin = 0

    def _assign(self) -> None:
        before = self.commits[-1].metadata if self.commits else None
        topic = f"T{self._topic}"
        facts = Facts(
            offset=before.committed_offset if before else None,
            metadata=before,
            unreadable="",
            log_begin=self.log_begin,
            log_end=len(self._text),
            topic_id=topic,
            compacted=False,
            marker_topic_id=before.topic_id if before else None,
            accepted="TopicRecreated" if before and before.topic_id != topic else "",
        )
        start = take_over(facts, replica=self.random.choice(["r1", "r2", "r3"]), epoch=0, now_ms=self._now)
        assert isinstance(start, Start), start
        self._owner = start.state

    def _handle(self, event: Event) -> None:
        assert self._owner is not None
        self._owner, _ = step(self._owner, event, self._now)
        while self._owner.committing is not None:
            self._commit(self._owner.committing)

    def _commit(self, metadata: Metadata) -> None:
        """It lands, is refused, or lands and its reply is lost."""
        assert self._owner is not None
        fate = self.random.choices(["ok", "refused", "unheard"], weights=[12, 1, 1])[0]
        if fate != "refused":
            self.commits.append(Commit(metadata, log_begin=self.log_begin))
        if fate == "ok":
            self._owner, _ = step(self._owner, CommitSucceeded(metadata.seq), self._now)
        else:
            self._owner, _ = step(self._owner, CommitRefused(metadata.seq, "UnknownMember"), self._now)

    def _scan(self) -> None:
        owner = self._owner
        assert owner is not None
        skipped = frozenset(self.random.sample(range(1, 5), self.random.choice([0, 0, 1, 2])))
        request = scan(
            owner, skipped=skipped, near=self.random.choice([0, 5, 1000]), catch_up=self.random.random() < 0.5
        )
        if request.start < self.log_begin:
            self._owner = None  # out of range: the state is rebuilt
            return
        end = len(self._text) if request.stop is None else request.stop
        stop = min(end, request.start + self.random.randint(1, 15))
        if stop <= request.start:
            return
        log = Log("-" * self.log_begin + self._text[self.log_begin :])
        report, _ = model_log.scan(log, request, stop, self.random.choice([None, 1, 2]))
        self._handle(Scanned(report, frozenset(table for table, _ in request.resume)))

    def _answer(self) -> None:
        """A block is stored, fails, or is rebuilt."""
        owner = self._owner
        assert owner is not None
        open_blocks = [(t.table, t.block) for t in owner.in_flight if t.block is not None]
        if not open_blocks:
            return
        table, block = self.random.choice(open_blocks)
        intent = block.intent
        if block.stage is Stage.INSERTING:
            event = self.random.choice([Stored, Stored, InsertFailed])
            self._handle(event(table, intent.begin, intent.end))
        elif replays(owner, frozenset([table])):
            self._handle(Rebuilt(table, model_log.rebuild(Log(self._text), table, intent)))

    def _flush(self) -> None:
        self._handle(Flush(close_window=self.random.random() < 0.5))

    def _crash(self) -> None:
        self._owner = None

    def _retain(self) -> None:
        self.log_begin = min(len(self._text), self.log_begin + self.random.randint(0, 25))

    def _recreate(self) -> None:
        if self.commits:
            self._new_log()
            self._owner = None


def seeds(base: int, count: int) -> Iterator[int]:
    """`count` seeds that follow from `base` alone."""
    random = Random(base)
    for _ in range(count):
        yield random.getrandbits(48)
