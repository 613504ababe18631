"""What is asked of a replica and what it answers, as plain values. Imports no client library and does no I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from blockhouse.config.pipeline import MAX_BLOCK_BYTES
from blockhouse.errors import Permanent

Header = tuple[tuple[str, str], ...]
"""(name, type) of each column, in order, types spelled as the server spells them."""

MAX_ROWS = 1_048_576
MAX_BYTES = MAX_BLOCK_BYTES
"""From these on the server cuts one packet into several blocks, each deduplicated by itself."""

Scalar = str | int | float

_DUPLICATE = re.compile(r"Block with ID .* already exists|All rows are deduplicated for part")


@dataclass(frozen=True, slots=True)
class Features:
    """What a server can do: `settings` are the names it knows (`system.settings`), the rest follows from them.

    `settings_as_text` is false for servers (18.16) to which the driver can send only settings whose type it knows.
    `logs`: the server sends the log lines of a query to the client that asks for them.
    """

    version: tuple[int, int, int]
    settings: frozenset[str]
    settings_as_text: bool
    logs: bool = False

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def deduplication_token(self) -> bool:
        return self.settings_as_text and "insert_deduplication_token" in self.settings

    @property
    def low_cardinality(self) -> bool:
        """Whether columns of type LowCardinality need no setting."""
        return self.settings_as_text

    @property
    def log_lines(self) -> dict[str, Scalar]:
        """The setting by which an insert asks for its own log lines, which report deduplication."""
        return {"send_logs_level": "information"} if "send_logs_level" in self.settings else {}

    @property
    def switches(self) -> dict[str, Scalar]:
        """Settings of every insert, those of them that this server knows."""
        known = self.settings if self.settings_as_text else self.settings & set(_OLD_SWITCHES)
        return {name: value for name, value in (_OLD_SWITCHES | _SWITCHES).items() if name in known}

    def refused(self, effective: Mapping[str, str]) -> str | None:
        """The first switch which the server has otherwise than was asked, in words. `effective` is what it reports."""
        for name, value in self.switches.items():
            if effective.get(name) != str(value):
                return f"setting {name} is {effective.get(name, 'unknown')} although {value} was sent"
        return None


_OLD_SWITCHES: dict[str, Scalar] = {"insert_deduplicate": 1}
_SWITCHES: dict[str, Scalar] = {
    "deduplicate_insert": "enable",  # since 26.2 it decides, whatever the value of insert_deduplicate
    "insert_quorum_parallel": 0,  # the acknowledgement reads quorum/status, and reads stay sequential
    "async_insert": 0,  # on by default since 26.3; it would put blocks of several inserts into one
    "insert_keeper_max_retries": 0,  # a retry inside the server finds its own part and calls it a duplicate
    "max_insert_block_size": MAX_ROWS,  # a smaller one cuts the packet into blocks
    "max_insert_block_size_bytes": 0,
    # A block that is sent again reaches the views too, each of which knows by its own hash what it has.
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "materialized_views_ignore_errors": 0,
}
"""Stated even where they are defaults: a user's profile may differ."""
_OFF: dict[str, Scalar] = {"insert_deduplicate": 0, "deduplicate_insert": "disable"}
"""Of an insert of rows that were stored once: the server may remember them although their part is gone."""


@dataclass(frozen=True, slots=True)
class InsertRequest:
    """One block. Resent after an unknown fate it must be the same in every field but `lifetime`.

    `body` is one Native block (varint columns, varint rows, then name, type, data per column) of `rows` rows with
    `header`. `quorum` below 2 means none. `quorum_timeout` and `lifetime` are seconds, the former below the latter.
    `token` deduplicates where the server has tokens; elsewhere the content does, with every column of the table in it.
    Without `deduplicate` nothing does: the server stores the rows whatever it remembers.
    Of a block that may be there already one of both is relied on. `exact`: the content; refuses the insert, as
    retryable and before any row is sent, if the server has tokens or `header` does not name each insertable column the
    table has at that moment. `by_token` refuses it, likewise, if the server has no tokens. `before` is called when all
    is ready but the first byte of `body`: what it raises ends the insert, and no row was sent.
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
    by_token: bool = False
    deduplicate: bool = True
    before: Callable[[], None] = field(default=lambda: None, compare=False)

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
        """Settings of the INSERT."""
        settings: dict[str, Scalar] = {
            **features.switches,
            **features.log_lines,
            "insert_quorum": self.quorum if self.quorum > 1 else 0,
            "insert_quorum_timeout": int(self.quorum_timeout * 1000),
            "max_execution_time": math.ceil(self.lifetime),
        }
        if not self.deduplicate:
            return settings | {name: _OFF[name] for name in settings.keys() & _OFF.keys()}
        if features.deduplication_token and self.token is not None:
            settings["insert_deduplication_token"] = self.token
        return settings


@dataclass(frozen=True, slots=True)
class InsertResult:
    """The server reported that the block is stored. After a retry or takeover that acknowledges nothing
    yet: see quorum.py.

    `elapsed` is in seconds. `deduplicated`: the server's log lines of this very insert report that at least one part of
    the block was in this table already (parts of views that depend on it do not count); None when the server sends no
    lines. True is the server's word; False rests on the texts of the versions tested (18.16, 26.9). Never base an
    acknowledgement on it. (The server-wide counter DuplicatedInsertedBlocks cannot separate concurrent inserts.)
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


def reports_duplicate(source: str, text: str, database: str, table: str) -> bool:
    """Whether a log line of an insert into the table reports that the table has a part of the block already.

    `source` is the logger's name, e.g. "default.clicks (7a0b...) (Replicated OutputStream)" or, on 18.16, without the
    table's UUID.
    """
    return source.startswith(f"{database}.{table} (") and _DUPLICATE.search(text) is not None
