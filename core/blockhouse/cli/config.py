"""Check the configuration of an aggregator and show every field it may have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Check the configuration of an aggregator and show every field it may have.", no_args_is_help=True
)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The YAML file of an aggregator.")]) -> None:
    """Say everything that is wrong with FILE at once; exit code 2 if anything is."""
    from blockhouse.config.load import load

    config = load(file)
    clusters = ", ".join(cluster.name for cluster in config.kafka.clusters)
    typer.echo(
        f"{file}: ok: pipeline {config.pipeline}, shard {config.shard}, replica {config.replica}, "
        f"topic {config.kafka.topic} of Kafka clusters {clusters}"
    )


@app.command()
def fields() -> None:
    """Print every field with what it accepts and its default, as a Markdown table."""
    from blockhouse.config.describe import leaf_fields
    from blockhouse.config.pipeline import AggregatorConfig

    typer.echo("| field | accepts | default |\n|---|---|---|")
    for field in leaf_fields(AggregatorConfig):
        typer.echo(f"| `{field.path}` | {field.form} | {field.default} |")
