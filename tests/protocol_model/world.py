"""What exists, as one immutable value: hashable, so that an exploration knows where it has been.

Named tuples, not dataclasses: an exploration hashes and copies them millions of times.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from blockhouse.metadata.model import InFlight, Metadata
from blockhouse_aggregator.protocol.events import Effect
from blockhouse_aggregator.protocol.state import StreamState
from tests.protocol_model.log import Log, Rows

RULES = frozenset(
    {
        "intent-first",  # the intent is committed before the insert
        "boundary",  # a replay takes the recorded boundaries
        "epoch",  # state and plan are dropped when the stream is lost; a commit is of the present epoch
        "rejoin",  # after a commit of unknown fate: a new member id before the metadata is read
        "confirm",  # a commit of the new owner succeeds before it sends an inherited block
        "ack",  # an "ok" after a retry or takeover counts when the quorum is clear and no part failed
        "provenance",  # an intent that may have left the window is decided by what is stored
        "lock",  # held from the decision to the end of the insert
        "lifetime",  # a grant dies before the window has passed, and with its session
        "limit",  # a round that does not fit the metadata is not committed
    }
)


class Budget(NamedTuple):
    """How often each misfortune may still strike."""

    rebalances: int = 0
    crashes: int = 0
    unknown_commits: int = 0
    stuck_inserts: int = 0
    lost_writers: int = 0
    lost_sessions: int = 0
    lost_tasks: int = 0
    full_windows: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """What stays the same in one walk. `room`: how many entries a metadata can hold. `partitions`: of each ClickHouse
    table; a block becomes one part in each it touches. The `fine_` ones let others act between two steps that are
    otherwise taken at once: fine in long walks, where it matters in explorations."""

    log: Log
    rules: frozenset[str] = RULES
    owners: int = 2
    budget: Budget = Budget()  # noqa: RUF009 (an immutable value)
    room: int = 99
    partitions: int = 1
    may_hold: bool = False
    may_cut: bool = False
    may_close: bool = False
    fine_effects: bool = False
    fine_reads: bool = False
    fine_inserts: bool = False


class Request(NamedTuple):
    """An offset commit on its way to the coordinator."""

    owner: int
    member: int
    generation: int
    metadata: Metadata


class Group(NamedTuple):
    """The coordinator: it checks member id and generation of a commit, not who owns the stream. `since` is the
    generation from which on the owner has held the stream without a break."""

    generation: int
    since: int
    owner: int
    members: tuple[int, ...]
    metadata: Metadata | None = None
    late: tuple[Request, ...] = ()

    def accepts(self, request: Request) -> bool:
        return (self.members[request.owner], self.generation) == (request.member, request.generation)


class Table(NamedTuple):
    """One replicated table. `stored` are the rows with quorum, `pending` the one that waits for it, `hashes` the
    deduplication window, `failed` counts the parts that vanished with their writer."""

    stored: Rows = ()
    pending: Rows | None = None
    hashes: frozenset[Rows] = frozenset()
    failed: int = 0


class Phase(IntEnum):
    WAITING = 0
    """Granted; the lock is not held yet."""
    DECIDED = 1
    """The lock is held and it is decided which rows to send."""
    ANSWERED = 2
    """The server answered "ok"; it is not believed yet."""


class Grant(NamedTuple):
    """An insert a worker may do. `orphan`: its driver has forgotten it, its outcome is not reported."""

    owner: int
    table: int
    intent: InFlight
    fresh: bool
    rows: Rows
    phase: Phase = Phase.WAITING
    locked: bool = False
    failed_before: int = 0
    orphan: bool = False


class Owner(NamedTuple):
    """One aggregator. `member` and `generation` are what it would commit with, `todo` the effects of its last steps
    that are not carried out yet; `assigned` means it was given the stream and has not read the metadata yet."""

    member: int = 1
    generation: int = 0
    assigned: bool = False
    state: StreamState | None = None
    todo: tuple[Effect, ...] = ()


class World(NamedTuple):
    group: Group
    owners: tuple[Owner, ...]
    tables: tuple[Table, ...]
    budget: Budget
    grants: tuple[Grant, ...] = ()
    dead_letters: frozenset[int] = frozenset()
    clock: int = 0

    def table(self, table: int) -> Table:
        return self.tables[table - 1]


def beginning(setting: Setting) -> World:
    """Owner 0 has just been assigned the stream; nothing has been committed."""
    return World(
        group=Group(generation=1, since=1, owner=0, members=(1,) * setting.owners),
        owners=tuple(Owner() for _ in range(setting.owners)),
        tables=(Table(),) * max(setting.log.tables),
        budget=setting.budget,
    )
