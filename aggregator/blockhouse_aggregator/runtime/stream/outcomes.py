"""The answers about one block: of its insert, and of its provenance columns. Values only; one closed type a question.

Every match over them is total (`assert_never`): "no row of it is stored" must never be read as "it is stored".
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse_aggregator.gate.messages import Result

# --- insert: what became of one attempt to store a block ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stored:
    """The block is stored for good. `result` is the task's answer (None: no task was asked), `lock_wait` how many
    seconds the attempt waited for the table's lock."""

    result: Result | None = None
    by_provenance: bool = False
    lock_wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Condemned:
    """The block can never be inserted as it is; `reason` is CamelCase."""

    reason: str
    message: str
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Not known to be stored: try again after at least `after` seconds. `rebuild`: not with the bytes at hand. `fault`
    is what is at fault, as `Retryable.fault`; `result` is there when an insert was granted. `code` is the number with
    which the server refused what the driver asked it, `overdue`: something did not come within the time for it."""

    message: str
    after: float = 0.2
    rebuild: bool = False
    fault: str = ""
    result: Result | None = None
    code: int | None = None
    overdue: bool = False

    @property
    def cause(self) -> str:
        """The server's number of the error, or what it was that has none: `timeout`, `quorum`, `connection`, `driver`.
        They are explained in docs/clickhouse.md."""
        number = self.result.code if self.result is not None and self.result.code else self.code
        if number:
            return str(number)
        if self.overdue:
            return "timeout"
        if self.result is not None and self.result.outcome == "stored":
            return "quorum"
        return "connection" if self.fault or self.result is not None else "driver"


InsertOutcome = Stored | Condemned | TryAgain


# --- provenance: which rows of a block the table holds --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Absent:
    """Certainly no row of the block is in the table."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Certainly every row of the block is in the table."""


@dataclass(frozen=True, slots=True)
class Partial:
    """`rows` rows of `messages` messages are in the table, of `expected` messages of the block. Also when all of them
    show, of a block over several partitions: each message may have only some of its rows there."""

    messages: int
    expected: int
    rows: int


@dataclass(frozen=True, slots=True)
class CannotTell:
    """Not known, because of `why`. Ask again after at least `after` seconds; None: asking again does not help."""

    why: str
    after: float | None


Provenance = Absent | Whole | Partial | CannotTell
