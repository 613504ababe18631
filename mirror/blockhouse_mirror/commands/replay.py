"""`blockhouse mirror replay`: hold load-based assignment against recorded cases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from blockhouse.errors import BlockhouseError, Permanent

EXAMPLES = (
    "Examples:\n\n"
    "  blockhouse mirror replay cases.jsonl --parity > answers.jsonl\n\n"
    "  blockhouse mirror replay cases.jsonl --tolerance 10 | jq -r '[.id, .ratio, (.moved | length)] | @tsv'"
)


def replay(
    file: Annotated[Path, typer.Argument(help="A JSON object a line: partitions, throughput_kb, tasks, limits.")],
    parity: Annotated[bool, typer.Option("--parity", help="Answer as Brooklin's assigner does.")] = False,
    tolerance: Annotated[
        float, typer.Option(min=0, max=1000, help="Percent a task may be above the mean before it gives.")
    ] = 10.0,
) -> None:
    """Print one JSON object a case: what the assignment is, and how many tasks the load needs.

    A line that is no case is reported and the others are answered all the same; the exit code is 1 then.
    """
    from blockhouse.balance import replay as cases

    answer: Callable[[Any], dict[str, Any]] = (
        cases.as_brooklin if parity else lambda case: cases.as_ours(case, tolerance / 100)
    )
    failed = 0
    for number, document in _lines(file):
        try:
            if isinstance(document, BlockhouseError):
                raise document
            name, case = cases.parse(document)
            typer.echo(json.dumps({"id": name} | answer(case)))
        except BlockhouseError as error:
            failed += 1
            typer.secho(f"{file}:{number}: {error}", fg=typer.colors.RED, err=True)
    if failed:
        raise typer.Exit(1)


def _lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Objects of the file by line number; an error in the place of one that cannot be read. Notes are left out."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Permanent(f"{file}: cannot be read: {error}", reason="InvalidCase") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            yield number, Permanent(f"no JSON: {error}", reason="InvalidCase")
            continue
        if not isinstance(document, dict):
            yield number, Permanent("no JSON object", reason="InvalidCase")
        elif "partitions" in document or "about" not in document:
            yield number, document
