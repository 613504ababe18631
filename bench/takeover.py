"""What a takeover costs a table: the rows of an inherited block are asked of its provenance columns first.

    .venv/bin/python bench/takeover.py
    CLICKHOUSE=26.9 .venv/bin/python bench/takeover.py --rows 100000000 --rounds 5

One replica, one table of as many rows, ten of each message, from eight partitions, in the order of a key that has
nothing to do with where they came from: the worst case for the question. A block of 5,000 messages is asked for that
was stored last, as in a takeover, one that was stored long ago, and one that is not there. Beside it a read of one
number a row, the physical limit. Figures, never pass or fail on time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from blockhouse.config.endpoints import ClickHouse
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.provenance import stored_rows
from blockhouse_aggregator.clickhouse.tables import ServerTable, caught_up, describe
from e2e.stack import Stack, StackSpec
from e2e.stack.process import wait_until
from e2e.stack.tables import create_replicated_table

TABLE, PARTITIONS, ROWS, MESSAGES = "events", 8, 10, 5_000
PORTION = 5_000_000
ORIGIN = Origin("a", 3, "events/8sOi0wjzTcWEcUSfyHoYxQ")


def main(
    rows: Annotated[int, typer.Option(min=1_000_000, help="Rows of the table.")] = 100_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; medians are printed.")] = 5,
) -> None:
    """Time of the questions of a takeover, in seconds."""
    with (
        tempfile.TemporaryDirectory() as name,
        Stack(Path(name) / "stack", StackSpec(kafka_clusters=1, replicas=1)) as stack,
    ):
        (server,) = stack.clickhouse.values()
        create_replicated_table(stack, TABLE, "id UInt64, value Float64", order_by="id")
        with Replica(ClickHouse(host=server.host, port=server.port), timeout=300) as replica:
            fill(replica, rows)
            settle(replica)
            found = describe(replica, "default", TABLE)
            assert found is not None
            messages = rows // ROWS // PARTITIONS
            report(replica, measured(replica, found, messages, rounds), rows)


def fill(replica: Replica, rows: int) -> None:
    """`rows` rows, ten of each message; the key is a hash, so that a part has the offsets of a block all over it."""
    for first in track(range(0, rows, PORTION), "filling", console=Console(stderr=True)):
        replica.query(
            f"INSERT INTO {TABLE} SELECT cityHash64(n), n / 7, '{ORIGIN.cluster}', toUInt32(intDiv(n, {ROWS}) %"
            f" {PARTITIONS}), intDiv(n, {ROWS * PARTITIONS}), toUInt32(n % {ROWS}), '{ORIGIN.topic}'"
            f" FROM (SELECT toUInt64(number) + {first} AS n FROM numbers({min(PORTION, rows - first)}))"
        )


def settle(replica: Replica) -> None:
    """Until nothing merges any more."""
    merging = f"SELECT count() FROM system.merges WHERE table = '{TABLE}'"
    if not wait_until(
        lambda: caught_up(replica, "default", TABLE) and replica.query(merging) == [(0,)], timeout=600, interval=1
    ):
        raise SystemExit("the table still merges after ten minutes")


def measured(replica: Replica, table: ServerTable, messages: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each question, interleaved."""
    there, beyond, newest = messages // 2, messages + 1, (messages - MESSAGES, messages - 1)

    def found(stored: StoredRows) -> bool:
        return len(stored.counts) == MESSAGES

    questions: dict[str, Callable[[], object]] = {
        "block in the newest parts": lambda: stored_rows(replica, table, ORIGIN, *newest, enough=found),
        "block in old parts": lambda: stored_rows(replica, table, ORIGIN, there, there + MESSAGES - 1, enough=found),
        "block absent": lambda: stored_rows(replica, table, ORIGIN, beyond, beyond + MESSAGES - 1, enough=found),
        "one number a row": lambda: replica.query(f"SELECT max(_kafka_offset) FROM {TABLE} WHERE id != 0"),
    }
    seconds: dict[str, list[float]] = {question: [] for question in questions}
    for _ in range(rounds):
        for question, ask in questions.items():
            began = time.monotonic()
            ask()
            seconds[question].append(time.monotonic() - began)
    return seconds


def report(replica: Replica, seconds: dict[str, list[float]], rows: int) -> None:
    ((version,),) = replica.query("SELECT version()")
    parts = replica.query(f"SELECT count() FROM system.parts WHERE table = '{TABLE}' AND active")[0][0]
    table = Table(title=f"ClickHouse {version}, {rows:,} rows in {parts} parts", title_justify="left")
    for heading in ("question", "median s", "least s", "most s"):
        table.add_column(heading)
    for question, all_ in seconds.items():
        table.add_row(question, *(f"{value:.2f}" for value in (statistics.median(all_), min(all_), max(all_))))
    Console(file=sys.stdout).print(table)


if __name__ == "__main__":
    typer.run(main)
