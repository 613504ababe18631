"""What is asked of a replica and what it answers, as plain values. Imports no client library and does no I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass

from blockhouse.errors import Permanent

Header = tuple[tuple[str, str], ...]
"""(name, type) of each column, in order, types spelled as the server spells them."""

MAX_ROWS = 1_048_576
MAX_BYTES = 256 << 20
"""From these on the server cuts one packet into several blocks, each deduplicated by itself."""

Scalar = str | int | float


@dataclass(frozen=True, slots=True)
class Features:
    """What a server can do: `settings` are the names it knows (`system.settings`), the rest follows from them.

    `settings_as_text` is false for servers (18.16) to which the driver can send only settings whose type it knows.
    """

    version: tuple[int, int, int]
    settings: frozenset[str]
    settings_as_text: bool

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def deduplication_token(self) -> bool:
        return self.settings_as_text and "insert_deduplication_token" in self.settings

    @property
    def insert_quorum_parallel(self) -> bool:
        return self.settings_as_text and "insert_quorum_parallel" in self.settings

    @property
    def async_insert(self) -> bool:
        return self.settings_as_text and "async_insert" in self.settings

    @property
    def query_logs(self) -> bool:
        """Whether an insert can ask for its own log lines, which tell of deduplication."""
        return "send_logs_level" in self.settings


@dataclass(frozen=True, slots=True)
class InsertRequest:
    """One block. Resent after an unknown fate it must be the same in every field but `lifetime`.

    `body` is one Native block (varint columns, varint rows, then name, type, data per column) of `rows` rows with
    `header`. `quorum` below 2 means none. `quorum_timeout` and `lifetime` are seconds, the former below the latter.
    `token` deduplicates where the server has tokens; elsewhere the content does, with every column of the table in it:
    `exact` refuses the insert, as retryable and before any row is sent, unless `header` names each insertable column
    the table has at that moment.
    """

    database: str
    table: str
    header: Header
    body: bytes
    rows: int
    quorum: int
    quorum_timeout: float
    token: str | None
    lifetime: float
    exact: bool = False

    def check(self) -> None:
        """Raises Permanent(BlockTooLarge | MalformedBlock), or ValueError for times that cannot work."""
        if not 0 < self.quorum_timeout < self.lifetime:
            raise ValueError(f"quorum_timeout {self.quorum_timeout} must be above 0 and below lifetime {self.lifetime}")
        name = f"block for {self.database}.{self.table}"
        if self.rows >= MAX_ROWS or len(self.body) >= MAX_BYTES:
            raise Permanent(
                f"{name}: {self.rows} rows in {len(self.body)} bytes are too much for one Data packet"
                f" (below {MAX_ROWS} rows and {MAX_BYTES} bytes): lower blocks.maxRows or blocks.maxBytes",
                reason="BlockTooLarge",
            )
        columns, at = _varint(self.body, 0)
        rows, _ = _varint(self.body, at)
        if rows != self.rows or columns != len(self.header) or rows == 0:
            raise Permanent(
                f"{name}: its bytes hold {columns} columns and {rows} rows, announced were"
                f" {len(self.header)} columns and {self.rows} rows: please report this",
                reason="MalformedBlock",
            )

    def settings(self, features: Features) -> dict[str, Scalar]:
        """Settings of the INSERT: stated even where they are defaults, for a user's profile may differ."""
        settings: dict[str, Scalar] = {
            "insert_deduplicate": 1,
            "insert_quorum": self.quorum if self.quorum > 1 else 0,
            "insert_quorum_timeout": int(self.quorum_timeout * 1000),
            "max_execution_time": math.ceil(self.lifetime),
        }
        if features.insert_quorum_parallel:
            settings["insert_quorum_parallel"] = 0  # 1 would give up sequential consistency
        if features.async_insert:
            settings["async_insert"] = 0  # weakens deduplication
        if features.deduplication_token and self.token is not None:
            settings["insert_deduplication_token"] = self.token
        if features.query_logs:
            settings["send_logs_level"] = "information"
        return settings


@dataclass(frozen=True, slots=True)
class InsertResult:
    """The server said that the block is stored. After a retry or takeover that acknowledges nothing yet: see quorum.py.

    `elapsed` is in seconds. `deduplicated`: the server's log lines of this very insert say that at least one part of
    the block was there already; None when the server cannot tell. It is a figure for people and tests, for the lines
    are text: never base an acknowledgement on it. (The server-wide counter DuplicatedInsertedBlocks is worse: it
    cannot tell concurrent inserts apart.)
    """

    elapsed: float
    deduplicated: bool | None


def difference(ours: Header, server: Header) -> str | None:
    """The first difference between the header of a block and the one the server expects, in words; None if equal."""
    for index, (mine, theirs) in enumerate(zip(ours, server, strict=False), start=1):
        if mine != theirs:
            return f"column {index} is {' '.join(mine)} in the block and {' '.join(theirs)} on the server"
    if len(ours) != len(server):
        return f"the block has {len(ours)} columns, the server expects {len(server)}"
    return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    return -1, at
