"""Check the configuration of an aggregator or a verifier, show every field it may have, and print the token that only
reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel

app = typer.Typer(
    help="Check the configuration of an aggregator or a verifier and show every field it may have.",
    no_args_is_help=True,
    epilog="Example: blockhouse config check aggregator.yaml",
)

Verifier = Annotated[bool, typer.Option("--verifier", help="The configuration of a verifier.")]


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The YAML file.")], verifier: Verifier = False) -> None:
    """Report everything that is wrong with FILE at once; exit code 2 if anything is.

    Environment variables and files of secrets and certificates that are not here are warnings, for FILE may be checked
    elsewhere than it is used: `blockhouse aggregator run` does not start without them.

    Example: blockhouse config check aggregator.yaml
    """
    from blockhouse.config.load import load, load_as
    from blockhouse.config.verifier import VerifierConfig

    if verifier:
        watched = load_as(VerifierConfig, file)
        _warn_of_absent(watched)
        names = ", ".join(cluster.name for cluster in watched.clusters)
        groups = ", ".join(watched.groups)
        typer.echo(f"{file}: ok: pipeline {watched.pipeline}, groups {groups} of Kafka clusters {names}")
        return
    config = load(file)
    _warn_of_absent(config)
    clusters = ", ".join(cluster.name for cluster in config.kafka.clusters)
    typer.echo(
        f"{file}: ok: pipeline {config.pipeline}, shard {config.shard}, replica {config.replica}, "
        f"topic {config.kafka.topic} of Kafka clusters {clusters}"
    )


def _warn_of_absent(settings: BaseModel) -> None:
    from blockhouse.config.files import absent

    for problem in absent(settings):
        typer.secho(f"warning: {problem.removesuffix('; put it back')}", fg=typer.colors.YELLOW, err=True)


@app.command()
def fields(verifier: Verifier = False) -> None:
    """Print every field with what it accepts, its default and its meaning, as a Markdown table.

    Example: blockhouse config fields --verifier
    """
    from blockhouse.config.describe import table
    from blockhouse.config.pipeline import AggregatorConfig
    from blockhouse.config.verifier import VerifierConfig

    typer.echo(table(VerifierConfig if verifier else AggregatorConfig), nl=False)


@app.command("read-token")
def read_token(file: Annotated[Path, typer.Argument(help="File with the token of admin APIs.")]) -> None:
    """Print the token that only reads, for Prometheus: it follows from that of `admin.token`, which FILE has.

    Every program that has the token of FILE accepts the printed one for GET, and answers 403 to any other request.

    Example: blockhouse config read-token token > metrics-token
    """
    from blockhouse.config.secrets import SecretRef
    from blockhouse.tokens import read_only

    typer.echo(read_only(SecretRef(file=file).read()))
