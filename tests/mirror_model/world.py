"""What exists, as one immutable value. The mirror's own objects are built from it for one step and read off again."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import NamedTuple

from blockhouse.placement.model import TopicPartition
from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.protocol.ownership import GRANT_SECONDS, WIRE_SECONDS, Ownership
from blockhouse_mirror.protocol.position import Holder, Position
from blockhouse_mirror.protocol.progress import Progress, Run
from blockhouse_mirror.protocol.provenance import Origin, origin_format
from blockhouse_mirror.protocol.takeover import Log

RULES = frozenset(
    {
        "self-end",  # a task that has not heard its driver for the time of a grant ends
        "grant",  # what a lost task held is granted again only when that time is over
        "wire",  # ... and what it had sent has arrived or never will
        "confirm",  # a task confirms that it has ended only when all it sent is acknowledged
        "tail",  # the new task reads what is on the target behind the position
        "no-jump",  # a tail with a gap is not jumped: what follows the gap is mirrored again
        "marker",  # a new driver waits for tasks that the former one may have had
        "letter-first",  # a record that the target refuses is passed only when its dead letter is acknowledged
        "once-granted",  # a partition that a task holds is granted to no other one
    }
)
KEY = TopicPartition("t", 0)
TICK = 5.0
"""Seconds."""
SOURCE, TARGET = "source", "target"
FORMAT = origin_format(SOURCE, "t-id", 0)


class Setting(NamedTuple):
    """What stays the same in one walk. `text` is the source's log: `r` a record, `f` one that the target refuses, `x`
    one that came from the target, `.` a hole. `gaps`: a record may expire unsent while later ones are sent. `freeze`: a
    process may be frozen and thawed. `replaced`: another driver may take over."""

    text: str
    rules: frozenset[str] = RULES
    gaps: bool = False
    freeze: bool = False
    replaced: bool = False

    @property
    def records(self) -> tuple[int, ...]:
        """Source offsets that have to be on the target."""
        return tuple(offset for offset, kind in enumerate(self.text) if kind == "r")


class Mode(StrEnum):
    IDLE = "idle"
    ASSIGNED = "assigned"
    """It has a grant, and has not read the tail yet."""
    RUNS = "runs"
    FROZEN = "frozen"
    DEAD = "dead"


class Worker(NamedTuple):
    """A task's process. `begin` and `tail` are where its progress began, `read` is its next source offset; `queue`,
    `wire` and `acked` are the records it handed over: headers that wait, headers sent, target offsets. `letter` is the
    source offset of the dead letter that is on its way, -1 for none. `left` is what
    is left of its grant in seconds. `cut`: it and its driver do not reach each other. `failed`: a record expired."""

    mode: Mode = Mode.IDLE
    generation: int = 0
    begin: int = 0
    tail: int = 0
    read: int = 0
    queue: tuple[bytes, ...] = ()
    wire: tuple[bytes, ...] = ()
    acked: tuple[int, ...] = ()
    letter: int = -1
    left: float = GRANT_SECONDS
    cut: bool = False
    failed: bool = False

    @property
    def alive(self) -> bool:
        return self.mode in (Mode.ASSIGNED, Mode.RUNS)

    def progress(self, setting: Setting) -> Progress:
        """The progress that led here; only to be read."""
        return _progress(setting.text, self.begin, self.tail, self.read, self.acked, self.letter)


@cache
def _progress(text: str, begin: int, tail: int, read: int, acked: tuple[int, ...], letter: int) -> Progress:
    found, acknowledged = Progress(begin, -1, tail), iter(acked)
    for offset in range(begin, read):
        match text[offset]:
            case "r":
                found.sent(Run.of_one(offset, 1, 0))
            case "x":
                found.leave_out(offset)
            case "f":
                while not found.settled:  # it is sent alone
                    found.acknowledged(next(acknowledged))
                after = found.after
                found.sent(Run.of_one(offset, 1, 0))
                if offset != letter:
                    found.lettered(after)
            case _:
                found.advance(offset + 1)
    for target_offset in acknowledged:
        found.acknowledged(target_offset)
    return found


class Driver(NamedTuple):
    """`holder` is the task that has the partition in its books, `waits` the seconds until it may be granted, `grants`
    how many there were, `desired` the task that shall have it. `known` is the position in its memory."""

    known: Position
    holder: str = ""
    ending: bool = False
    waits: float = 0.0
    grants: int = 0
    desired: str = "A"

    def ownership(self, now: float = 0.0) -> Ownership:
        """The grants that led here."""
        made = Ownership()
        for number in range(self.grants):
            made.granted(KEY, self.holder or "former")
            if not self.holder or number < self.grants - 1:
                made.confirmed(KEY, number + 1)
        if self.ending:
            made.ending(KEY)
        if self.waits:
            made.wait(KEY, now + self.waits - GRANT_SECONDS - WIRE_SECONDS)
        return made

    def after(self, ownership: Ownership, now: float = 0.0) -> Driver:
        """As the grants are now."""
        grant, free_at = ownership.holder(KEY), ownership.free_at(KEY)
        return self._replace(
            holder=grant.task if grant else "",
            ending=grant.ending if grant else False,
            waits=max(0.0, free_at - now) if free_at is not None else 0.0,
        )


class World(NamedTuple):
    """`log` has the provenance header of each record on the target, `letters` the source offset of each dead letter;
    `stored` is the position committed there."""

    log: tuple[bytes, ...]
    stored: Position
    driver: Driver
    workers: tuple[tuple[str, Worker], ...]
    replaced: bool = False
    letters: frozenset[int] = frozenset()

    def worker(self, name: str) -> Worker:
        return dict(self.workers)[name]

    def with_worker(self, name: str, worker: Worker) -> World:
        return self._replace(workers=tuple((n, worker if n == name else w) for n, w in self.workers))

    @property
    def origins(self) -> tuple[Origin, ...]:
        """What the records on the target state of themselves."""
        return _origins(self.log)

    def source_log(self, setting: Setting) -> Log:
        return Log(SOURCE, "t-id", 0, len(setting.text))

    @property
    def target_log(self) -> Log:
        return Log(TARGET, "u-id", 0, len(self.log))


@cache
def _origins(log: tuple[bytes, ...]) -> tuple[Origin, ...]:
    return tuple(origin for header in log if (origin := provenance.decode(header)) is not None)


def beginning() -> World:
    """Nothing is mirrored yet."""
    position = Position(SOURCE, "t-id", 0, 0, -1, "u-id", 0, Holder.SETTLED)
    return World((), position, Driver(position), (("A", Worker()), ("B", Worker())))
