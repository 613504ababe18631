"""`blockhouse topics throttle replay`: recorded situations answered as kafka-kit's autothrottle answers them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from blockhouse.fleet.inputs import read_text
from blockhouse.placement.model import InvalidInput
from blockhouse.throttle import kafka_kit


def replay(
    file: Annotated[Path, typer.Argument(help="JSON lines: cases of kind `headroom` or `sequence`.")],
) -> None:
    """Answer recorded situations as kafka-kit's autothrottle does, one JSON line each; nothing is asked or changed.

    So anybody can hold the parity formula against the original. Lines that hold no case (with `about`) are left out;
    one that cannot be read is named at the end, and the others are answered.
    """
    problems = []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        try:
            answer = _answer(line)
        except ValueError as error:
            problems.append(f"{file} line {number}: {error}")
            continue
        for found in answer:
            typer.echo(json.dumps(found))
    if problems:
        raise InvalidInput(problems)


def _answer(line: str) -> Iterator[Any]:
    """The answer to one line, if it holds a case. Raises ValueError in words."""
    if not line.strip():
        return iter(())
    try:
        case = json.loads(line)
    except ValueError:
        raise ValueError("it is not JSON") from None
    kinds = {"headroom": kafka_kit.headroom, "sequence": kafka_kit.sequence}
    if not isinstance(case, dict) or ("about" in case and "kind" not in case):
        return iter(())
    kind = case.get("kind")
    if kind not in kinds:
        raise ValueError(f"kind {kind!r} is neither headroom nor sequence")
    try:
        return iter([kinds[kind](case)])
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from None
    except (TypeError, AttributeError) as error:
        raise ValueError(f"a value has another form than expected: {error}") from None
