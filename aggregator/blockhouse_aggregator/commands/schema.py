"""Tables as their owners state them, and the schema history: what producers may send at which revision."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from blockhouse.cli.tables import Wide, print_table
from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Permanent
from blockhouse.schema.ddl import read_declaration
from blockhouse.schema.json_schema import render_json
from blockhouse.schema.model import PROVENANCE_COLUMNS, Revision, TableHistory
from blockhouse.schema.proto import render_proto
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.declared import compared, lacking_types
from blockhouse_aggregator.commands.schema_add import add
from blockhouse_aggregator.commands.schema_apply import apply
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session

CHANGES, REFUSED = 1, 2

app = typer.Typer(
    no_args_is_help=True,
    help="Tables, and the schema history: what producers may send.",
    epilog="Example: blockhouse schema proto clicks --config aggregator.yaml > clicks.proto",
)
app.command()(apply)
app.command()(add)

Config = Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of any aggregator of the pipeline.")]


@app.command("list")
def list_tables(config: Config, wide: Wide = False) -> None:
    """Every table the pipeline has heard of, with its id in the metadata, its revision and the number of its columns,
    without those of provenance.

    Example: blockhouse schema list --config aggregator.yaml
    """
    table = Table("id", "table", "revision", "columns")
    for history in _histories(load(config)):
        current = history.current
        columns = str(sum(each.name not in PROVENANCE_COLUMNS for each in current.columns)) if current else ""
        table.add_row(str(history.id), history.name, str(current.number) if current else "unknown table", columns)
    print_table(table, wide=wide)


@app.command()
def proto(
    table: Annotated[str, typer.Argument(help="`database.table`, or a table of the configured database.")],
    config: Config,
    revision: Annotated[int | None, typer.Option(help="Which revision; the current one by default.")] = None,
) -> None:
    """Print the .proto file for producers of a table.

    Example: blockhouse schema proto clicks --config aggregator.yaml > clicks.proto
    """
    typer.echo(render_proto(*_revision(load(config), table, revision)), nl=False)


@app.command("json")
def json_schema(
    table: Annotated[str, typer.Argument(help="`database.table`, or a table of the configured database.")],
    config: Config,
    revision: Annotated[int | None, typer.Option(help="Which revision; the current one by default.")] = None,
) -> None:
    """Print the JSON Schema of one line of format `json`, for producers of a table.

    Example: blockhouse schema json clicks --config aggregator.yaml > clicks.schema.json
    """
    typer.echo(render_json(*_revision(load(config), table, revision)), nl=False)


@app.command()
def diff(
    table: Annotated[str, typer.Argument(help="`database.table`, or a table of the configured database.")],
    ddl: Annotated[Path, typer.Option(help="File with the CREATE TABLE statement.", exists=True, dir_okay=False)],
    config: Config,
) -> None:
    """Show what a rollout of a declaration would change at the configured replica. Changes nothing.

    Exit code 0: nothing. 1: the table would be created or columns added. 2: refused, with every difference.

    Example: blockhouse schema diff db.clicks --ddl clicks.sql --config aggregator.yaml
    """
    settings = load(config)
    name = _full(table, settings)
    declared = read_declaration(name, ddl.read_text())
    with Replica(settings.clickhouse) as replica:
        difference = compared(replica, declared)
        impossible = lacking_types(replica, declared, difference)
    for text in impossible:
        typer.echo(f"refused: {text}")
    if impossible:
        raise typer.Exit(REFUSED)
    if difference is None:
        typer.echo(f"table {name} would be created")
        raise typer.Exit(CHANGES)
    for text in difference.refused:
        typer.echo(f"refused: {text}")
    if difference.refused:
        raise typer.Exit(REFUSED)
    for added in difference.added:
        typer.echo(f"column added: {added.sql}")
    if difference.added:
        raise typer.Exit(CHANGES)
    typer.echo(f"table {name} is as declared")


def _revision(settings: AggregatorConfig, table: str, revision: int | None) -> tuple[TableHistory, Revision]:
    name = _full(table, settings)
    history = next((found for found in _histories(settings) if found.name == name), None)
    requested = None if history is None else history.current if revision is None else history.revision(revision)
    if history is None or requested is None:
        what = f"table {name}" if history is None or revision is None else f"revision {revision} of table {name}"
        raise Permanent(
            f"the schema history of pipeline {settings.pipeline} has no {what}: see `blockhouse schema list`",
            reason="UnknownTable",
        )
    return history, requested


def _full(table: str, settings: AggregatorConfig) -> str:
    return table if "." in table else f"{settings.clickhouse.database}.{table}"


def _histories(settings: AggregatorConfig) -> tuple[TableHistory, ...]:
    with Session(settings.zookeeper) as session:
        return SchemaStore(session).all()
