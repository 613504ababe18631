"""Size a pipeline by its load: shards, partitions, replicas, requests, block limits, windows and Kafka's disks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from blockhouse.capacity.demand import Demand
from blockhouse.capacity.explain import NOT_KNOWN, Figure, figures
from blockhouse.capacity.plan import Plan, plan_for, warnings
from blockhouse.cli.tables import Wide, output_console, print_table
from blockhouse.config.load import read_as_mapping, validate_as

_HELP = """How large a pipeline has to be for its load, by formulas and measured figures that are named. Asks no server.

FILE is YAML with the fields below in camelCase (rowsPerSecond: 500000); an option counts before its field. Give the
load of the busiest time. What the figures mean, and what they do not know, is in docs/sizing.md.

Exit codes: 0 planned; 1 planned, and something stands against it; 2 the input cannot be used.

Examples:

  blockhouse plan --rows-per-second 500000 --bytes-per-row 200 --rows-per-message 50 --tables 20 --shards 4

  blockhouse plan demand.yaml --zones 2 --json
"""


def plan(
    file: Annotated[Path | None, typer.Argument(help="YAML file with fields of the demand.")] = None,
    rows_per_second: Annotated[float | None, typer.Option(help="Rows of all shards together.")] = None,
    bytes_per_second: Annotated[str | None, typer.Option(help="Bytes instead, such as 40Mi.")] = None,
    bytes_per_row: Annotated[str | None, typer.Option(help="Of a row in a Kafka message.")] = None,
    rows_per_message: Annotated[float | None, typer.Option(help="In the mean; 1 unless given.")] = None,
    tables: Annotated[int | None, typer.Option(help="Tables; each shard has all. 1 unless given.")] = None,
    shards: Annotated[int | None, typer.Option(help="ClickHouse shards.")] = None,
    rows_per_shard: Annotated[float | None, typer.Option(help="At most so many rows a second a shard.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Of a shard; without, as few as suffice.")] = None,
    quorum: Annotated[int | None, typer.Option(help="Replicas that have a block before it is stored.")] = None,
    zones: Annotated[int | None, typer.Option(help="From 2 on, one may be down. 1 unless given.")] = None,
    kafka_clusters: Annotated[int | None, typer.Option(help="They divide the load. 1 unless given.")] = None,
    replication_factor: Annotated[int | None, typer.Option(help="Copies in a Kafka cluster.")] = None,
    retention: Annotated[str | None, typer.Option(help="Of Kafka, such as 168h; 24h unless given.")] = None,
    max_age: Annotated[str | None, typer.Option(help="blocks.maxAge, such as 5s.")] = None,
    parts_per_block: Annotated[float | None, typer.Option(help="ClickHouse partitions of a block.")] = None,
    cpu_per_million_rows: Annotated[float | None, typer.Option(help="CPU seconds, as you measured.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    wide: Wide = False,
) -> None:
    given = {name: value for name, value in locals().items() if name in Demand.model_fields and value is not None}
    demand = _demand(file, given)
    found = plan_for(demand)
    against = warnings(demand, found)
    if as_json:
        typer.echo(json.dumps(_written(demand, found, against), indent=2))
    else:
        _show(figures(demand, found), against, wide=wide)
    raise typer.Exit(1 if against else 0)


plan.__doc__ = _HELP


def _demand(file: Path | None, options: dict[str, Any]) -> Demand:
    """Raises ConfigError with everything that is wrong."""
    named = {Demand.model_fields[name].alias or name: value for name, value in options.items()}
    if file is None:
        return validate_as(Demand, named, source="of the options")
    return validate_as(Demand, {**read_as_mapping(file), **named}, source=str(file))


def _written(demand: Demand, found: Plan, against: tuple[str, ...]) -> dict[str, Any]:
    return {
        "demand": demand.model_dump(mode="json", by_alias=True, exclude_none=True),
        "figures": {
            each.name: {"value": each.value, "unit": each.unit, "formula": each.formula, "source": each.source}
            for each in figures(demand, found)
        },
        "warnings": list(against),
        "notKnown": list(NOT_KNOWN),
    }


def _show(shown: tuple[Figure, ...], against: tuple[str, ...], *, wide: bool) -> None:
    table = Table("figure", "value", "formula", "constants", box=None)
    for each in shown:
        table.add_row(each.name, each.text, each.formula, each.source)
    print_table(table, wide=wide)
    console = output_console(wide=wide)
    for text in against:
        console.print(f"\nwarning: {text}", markup=False, highlight=False)
    console.print("\nnot known, and not in these figures:", markup=False)
    for text in NOT_KNOWN:
        console.print(f"  {text}", markup=False, highlight=False)
