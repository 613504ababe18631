"""The whole path on one machine: how fast, for how much CPU and memory, beside what else could load the same rows.

    python bench/end_to_end.py [--rows 2000000] [--runs 7] [--only limit,blockhouse]     rows per second, in rounds
    python bench/end_to_end.py --only limit,blockhouse --against ../before               beside another commit's
    python bench/end_to_end.py --only limit,blockhouse --no-topic-column                 rows without their topic
    python bench/end_to_end.py steady --rate 2000 --seconds 30                           latency of a steady stream
    python bench/end_to_end.py idle --seconds 60                                         what an idle aggregator costs
    python bench/end_to_end.py drain --gb 1                                              memory while a backlog drains

Figures, never pass or fail. `docs/bench.md` explains how to read them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import standing
from bench.blockhouse_loader import FIXED, BlockhouseLoader
from bench.dataset import CHUNK, Dataset
from bench.loaders import KafkaEngine, Limit, PlainLoop
from bench.race import Run, Start, race, summarize
from bench.report import run_line, run_titles, summary_table
from bench.testbed import FIRST_OFFSET, PARTITIONS, Testbed
from blockhouse.config.pipeline import Blocks

LIMIT, LOOP, AGAINST = "limit", "loop", "against"
CONTESTANTS = {
    LIMIT: "clickhouse-client, the same 10 MiB blocks",
    "blockhouse": "Blockhouse, 10 MiB blocks",
    "blockhouse-growing": "Blockhouse, growing blocks",
    LOOP: "confluent-kafka + protobuf + clickhouse-driver",
    "engine": "ClickHouse Kafka engine, JSON, no quorum",
    AGAINST: "Blockhouse of the other checkout, 10 MiB blocks",
}
OURS = tuple(name for name in CONTESTANTS if name != AGAINST)
"""Those of this checkout, which take part unless others are chosen."""

app = typer.Typer(help=__doc__, rich_markup_mode="rich", add_completion=False, pretty_exceptions_enable=False)
Folder = Annotated[Path, typer.Option(help="Where servers keep their data, and rows are kept for the next time.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")]
DEFAULT_FOLDER = Path(".run/bench")


@contextmanager
def testbed(folder: Path, *, names_topic: bool) -> Iterator[Testbed]:
    servers = folder.absolute() / f"servers-{os.getpid()}"
    try:
        with Testbed(servers, names_topic=names_topic) as bed:
            yield bed
    finally:
        shutil.rmtree(servers, ignore_errors=True)


@app.callback(invoke_without_command=True)
def compare(
    context: typer.Context,
    rows: Annotated[int, typer.Option(help=f"Rows a run; a multiple of {CHUNK}.")] = 2_000_000,
    runs: Annotated[int, typer.Option(min=1, help="Rounds of one run each.")] = 7,
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(OURS)}.")] = "all",
    against: Annotated[
        Path | None, typer.Option(help="A checkout of another commit, after make setup: its aggregator takes part too.")
    ] = None,
    topic_column: Annotated[
        bool, typer.Option(help="Tables with the column `_kafka_topic`, which older versions do not fill.")
    ] = True,
    folder: Folder = DEFAULT_FOLDER,
    json_file: Json = None,
) -> None:
    """Rows per second and CPU, in interleaved rounds."""
    if context.invoked_subcommand is not None:
        return
    names = chosen(only, against)
    data = Dataset(folder.absolute(), rows)
    data.prepare()
    with testbed(folder, names_topic=topic_column) as bed:
        blocks = bed.stack.folder / "blocks.native"
        write_blocks(data, blocks, names_topic=topic_column)
        every: dict[str, Start] = {
            LIMIT: partial(Limit, bed, data, blocks=blocks),
            "blockhouse": partial(BlockhouseLoader, bed, data, blocks=FIXED),
            "blockhouse-growing": partial(BlockhouseLoader, bed, data, blocks={}),
            LOOP: partial(PlainLoop, bed, data),
            "engine": partial(KafkaEngine, bed, data),
            AGAINST: partial(BlockhouseLoader, bed, data, blocks=FIXED, checkout=against),
        }
        print(run_titles())
        done = race(
            bed, {name: every[name] for name in names}, runs, rows, lambda run: print(run_line(run), flush=True)
        )
    found = summarize(done, limit=LIMIT, loop=LOOP)
    print(summary_table(found, CONTESTANTS))
    save(json_file, {"runs": [as_json(run) for run in done], "summary": [asdict(line) for line in found]})


def chosen(only: str, against: Path | None) -> list[str]:
    """The names of the contestants. Raises BadParameter for one that does not exist."""
    names = list(OURS) if only == "all" else [name.strip() for name in only.split(",")]
    if unknown := set(names) - set(OURS):
        raise typer.BadParameter(f"no contestant {', '.join(sorted(unknown))}: there are {', '.join(OURS)}")
    return names if against is None else [*names, AGAINST]


def as_json(run: Run) -> dict[str, Any]:
    return {**asdict(run), "rows_per_second": run.rows_per_second}


def write_blocks(data: Dataset, path: Path, *, names_topic: bool) -> None:
    """The blocks of all partitions in one file, one behind the other."""
    made = data.native_blocks(
        Blocks(), cluster="a", partitions=PARTITIONS, first_offset=FIRST_OFFSET, names_topic=names_topic
    )
    with path.open("wb") as file:
        for block in made:
            file.write(block)


def save(path: Path | None, figures: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(figures, indent=1) + "\n")


def stand(folder: Path, json_file: Path | None, measure: Callable[[BlockhouseLoader], dict[str, float]]) -> None:
    """Run one measurement of a single aggregator and print its figures."""
    data = Dataset(folder.absolute(), standing.ROWS)
    data.prepare()
    with testbed(folder, names_topic=True) as bed:
        bed.create_table("events")
        with BlockhouseLoader(bed, data, "events", {}) as loader:
            figures = measure(loader)
    for name, value in figures.items():
        print(f"{name:48} {value:12,.3f}")
    save(json_file, figures)


@app.command()
def steady(
    rate: Annotated[int, typer.Option(help="Messages a second, ten rows each.")] = 2000,
    seconds: Annotated[int, typer.Option(help="How long.")] = 30,
    folder: Folder = DEFAULT_FOLDER,
    json_file: Json = None,
) -> None:
    """Message time to acknowledged row, and the aggregator's CPU, under a steady stream."""
    stand(folder, json_file, partial(standing.steady, rate=rate, seconds=seconds))


@app.command()
def idle(
    seconds: Annotated[int, typer.Option(help="How long.")] = 60,
    folder: Folder = DEFAULT_FOLDER,
    json_file: Json = None,
) -> None:
    """CPU and memory of an aggregator without work."""
    stand(folder, json_file, partial(standing.idle, seconds=seconds))


@app.command()
def drain(
    gb: Annotated[float, typer.Option(help="Size of the backlog: message values, 10^9 bytes.")] = 1.0,
    folder: Folder = DEFAULT_FOLDER,
    json_file: Json = None,
) -> None:
    """Peak memory of the aggregator while it drains a backlog."""
    stand(folder, json_file, partial(standing.drain, size=int(gb * 1e9)))


if __name__ == "__main__":
    app()
