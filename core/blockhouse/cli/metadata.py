"""Read and write the metadata that aggregators commit beside their Kafka offsets."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from blockhouse.metadata import codec

app = typer.Typer(
    help="Read and write the metadata that aggregators commit beside their Kafka offsets.", no_args_is_help=True
)

_DECODE = """Print the metadata STRING (version 0, 1 or 2) as JSON.

Exit code 1 when it is damaged or foreign: nothing is ever decoded in part.

Examples:

  blockhouse metadata decode 'clicks,1,10,views,5,14'

  blockhouse metadata decode '1,,replica1,clicks,1,10,10,,0'

  blockhouse metadata decode --offset 1200 --names 1=db.clicks,7=db.views '2;r1;...'
"""

_ENCODE = """Print the metadata text of a JSON document as `decode` prints it.

Examples:

  blockhouse metadata decode '1,,r1,clicks,1,10,10,,0' | blockhouse metadata encode

  blockhouse metadata encode --version 1 '{"replica": "r1", "reference": 0, "tables": {}}'
"""


@app.command(help=_DECODE)
def decode(
    string: Annotated[str, typer.Argument(help="The metadata as committed.", metavar="STRING")],
    offset: Annotated[int | None, typer.Option(help="The Kafka offset it was committed with, to be verified.")] = None,
    names: Annotated[str, typer.Option(help="Names of tables by id, for version 2: 1=db.clicks,2=db.views")] = "",
) -> None:
    from blockhouse.metadata.document import to_json

    metadata = codec.decode(string, offset)
    typer.echo(json.dumps(to_json(metadata, _names(names)), indent=2))


@app.command(help=_ENCODE)
def encode(
    document: Annotated[
        str | None, typer.Argument(help="The JSON; without it, or with '-', standard input.", metavar="[JSON]")
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=1, max=2, help="Format to write; default: the version the JSON names.")
    ] = None,
) -> None:
    from blockhouse.metadata.document import from_json

    text = sys.stdin.read() if document in (None, "-") else document
    assert text is not None
    typer.echo(codec.encode(from_json(text, version)))


def _names(text: str) -> dict[int, str]:
    names: dict[int, str] = {}
    for pair in filter(None, text.split(",")):
        number, equals, name = pair.partition("=")
        if not (number.isdecimal() and equals and name) or name in names.values():
            raise typer.BadParameter(f"{pair!r} is not ID=NAME, or its name is given twice", param_hint="--names")
        names[int(number)] = name
    return names
