"""The vocabulary of the gate. A task never inserts a block it has no grant for; a grant is given at most once.

task                                   driver
Hello(work, epoch, lease)        ->         <- Welcome(settings)
                                            <- Scan | Replay | Finish | Stop     (one order at a time)
Sealed(report) | Rebuilt(blocks) ->         <- Grant(block) ... | Drop(block)    (at any time)
Result(block, outcome)           ->
Working                          ->         (any number, while it carries out a careful order)
Bye                              ->         (after Stop, when no insert is running)
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from blockhouse.config.pipeline import Blocks, Quorum
from blockhouse.gate.messages import Greeting, Hello, Message
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.faults.model import Injection


class BlockKey(Message):
    """Names one block of the stream: one is in flight per table, so an old answer is not taken for a new one."""

    table: str
    begin: int
    end: int


class BuiltBlock(BlockKey):
    """A block whose bytes the task holds. `rows` may be 0: then there is nothing to insert."""

    messages: int
    rows: int
    size: int
    revision: int
    crc: int
    oldest_ms: int


# --- task -> driver -----------------------------------------------------------------------------------------


class TableReport(Message):
    """See `protocol.events.TableScan`; `waits_for` is a revision which the task's catalog does not know yet."""

    table: str
    seen: int
    block: BuiltBlock | None = None
    dead: int = 0
    cursor: int | None = None
    waits_for: int | None = None


class LettersWritten(Message):
    """Dead letters of one table for one reason: how many, and the offset of the first with what of it is bad."""

    table: str
    reason: str
    count: int
    offset: int
    detail: str


class Sealed(Message):
    """The round's blocks are built. `log_end` is the end of what may be read now, for the lag; `letters` are those that
    the brokers have acknowledged in it."""

    type: Literal["sealed"] = "sealed"
    round: int
    start: int
    stop: int
    tables: tuple[TableReport, ...]
    headless: int
    leader_epoch: int
    log_end: int
    elapsed: float
    letters: tuple[LettersWritten, ...] = ()

    @property
    def blocks(self) -> tuple[BuiltBlock, ...]:
        return tuple(table.block for table in self.tables if table.block is not None)


class Rebuilt(Message):
    """Blocks rebuilt for a replay; `missing` names those whose messages the log no longer holds in full."""

    type: Literal["rebuilt"] = "rebuilt"
    round: int
    blocks: tuple[BuiltBlock, ...]
    missing: tuple[BlockKey, ...] = ()


class Result(Message):
    """What became of a granted insert. `outcome`: stored (the server answered ok, or provenance found every row),
    retryable, permanent. `presence` is what provenance answered, where it was asked; `surplus` counts rows stored more
    than once.
    """

    type: Literal["result"] = "result"
    block: BlockKey
    outcome: Literal["stored", "retryable", "permanent"]
    attempts: int
    elapsed: float
    deduplicated: bool | None = None
    presence: Literal["", "absent", "complete", "partial"] = ""
    surplus: int = 0
    code: int | None = None
    reason: str = ""
    message: str = ""


class Ready(Message):
    """Everything about the granted insert is done but its first byte: may it be sent now? Answered by `Go`."""

    type: Literal["ready"] = "ready"
    block: BlockKey


class Trouble(Message):
    """The task cannot carry out its order: `reason` is CamelCase; the order has to be given again or differently."""

    type: Literal["trouble"] = "trouble"
    reason: str
    message: str
    retryable: bool


class Working(Message):
    """A careful order takes its time: the task is not hung."""

    type: Literal["working"] = "working"


class Bye(Message):
    """The task ends in order: its lease is over."""

    type: Literal["bye"] = "bye"


# --- driver -> task -----------------------------------------------------------------------------------------


class Welcome(Greeting):
    """Accepted, with the settings that a task works by."""

    type: Literal["welcome"] = "welcome"
    blocks: Blocks
    quorum: Quorum
    database: str
    default_format: str = "rows"


class Scan(Message):
    """Read a range and seal it: see `protocol.schedule.ScanRequest`, with table names.

    `catalog` carries tables that are new or changed since the last order, `max_bytes` and `max_rows` the block limits
    of this round (they grow while catching up), `entries` how many tables without an entry the metadata has room for.
    `max_age` is the least age at which a block is sealed, seconds: while catching up it is raised so that blocks fill.
    Messages of `dead_tables` are dead-lettered for the reason given there, and below offset `expiring` those of a
    revision that is not known: retention would take them.
    `careful`: workers have died on it, see `isolation`; so in `Replay`.
    With `seal_at_end` (the stream was behind) they are sealed as soon as nothing more is to be read.
    `topic_id` goes into its rows and into the keys of its dead letters.
    A scan ends by itself after `patience` seconds without any message, and after `max_seconds` in any case.
    """

    type: Literal["scan"] = "scan"
    round: int
    start: int
    position: int
    stop: int | None
    resume: dict[str, int]
    exclude: tuple[str, ...]
    dead_tables: dict[str, str] = {}
    expiring: int = 0
    catalog: tuple[TableHistory, ...] = ()
    max_bytes: int
    max_rows: int
    entries: int
    max_age: float = 0
    seal_at_end: bool = False
    leader_epoch: int
    patience: float
    max_seconds: float
    careful: bool = False
    topic_id: str = ""
    faults: tuple[Injection, ...] = ()


class ReplayBlock(BlockKey):
    """`foreign`: as another aggregator sent it, without provenance."""

    revision: int
    foreign: bool = False


class Replay(Message):
    """Rebuild blocks exactly: all messages of each table in [begin, end], of the topic `topic_id`."""

    type: Literal["replay"] = "replay"
    round: int
    blocks: tuple[ReplayBlock, ...]
    catalog: tuple[TableHistory, ...] = ()
    topic_id: str = ""
    careful: bool = False
    faults: tuple[Injection, ...] = ()


class Grant(Message):
    """Insert this block now; with `ask_provenance` only the rows that the provenance columns show to be missing, and
    where rows that were inserted since `since_ms` (Unix milliseconds; 0: whenever) may have been removed on purpose,
    none: all of them are there, or it cannot be decided.
    `topic` and `sole` are as in `clickhouse.presence.Origin`. Rows in one of the `failed_parts` do not count.

    `exact` and `by_token`: deduplication is relied on, by content, which holds only while the server has no tokens and
    the table exactly the block's columns, or by token, which holds only while the server has tokens: refuse the insert
    otherwise. (So is every try after the first.) `token` is the deduplication token for servers that know it. No try
    may begin after `deadline_ms` (Unix time, milliseconds), and each must end about then. `faults` were armed on
    purpose, here and in orders.
    `repair`: rows of the block were stored once and may be lost, and the server may remember them all the same, so
    deduplication is switched off, and there is one try only.
    """

    type: Literal["grant"] = "grant"
    block: BlockKey
    token: str
    deadline_ms: int
    ask_provenance: bool = False
    since_ms: int = 0
    topic: str = ""
    sole: bool = True
    failed_parts: tuple[str, ...] = ()
    exact: bool = False
    by_token: bool = False
    repair: bool = False
    faults: tuple[Injection, ...] = ()


class Go(Message):
    """The answer to `Ready`: send it now, unless `refusal` states why not."""

    type: Literal["go"] = "go"
    block: BlockKey
    refusal: str = ""


class Drop(Message):
    """Forget the bytes of a block: it is stored, or will be rebuilt."""

    type: Literal["drop"] = "drop"
    block: BlockKey


class Finish(Message):
    """Seal the running scan now with what it has."""

    type: Literal["finish"] = "finish"


class Stop(Message):
    """End the lease: no more orders. Running inserts are waited for."""

    type: Literal["stop"] = "stop"


FromTask = Annotated[Hello | Sealed | Rebuilt | Result | Ready | Trouble | Working | Bye, Field(discriminator="type")]
FromDriver = Annotated[Welcome | Scan | Replay | Grant | Go | Drop | Finish | Stop, Field(discriminator="type")]

FROM_TASK: TypeAdapter[FromTask] = TypeAdapter(FromTask)
FROM_DRIVER: TypeAdapter[FromDriver] = TypeAdapter(FromDriver)
