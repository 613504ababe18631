"""Writing a plan: evacuated, cut into steps, reported, and held back when there are warnings or errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console

from blockhouse.fleet.options import Output
from blockhouse.fleet.view import show_report
from blockhouse.placement.documents import parse_broker_ids, render_map
from blockhouse.placement.leadership import evacuate_leadership
from blockhouse.placement.model import InvalidInput, PartitionMap, Sizes
from blockhouse.placement.phases import chunks, phases
from blockhouse.placement.plan import Plan
from blockhouse.placement.report import report_on
from blockhouse.placement.topics import select_topics

WRITTEN, WRITTEN_WITH_WARNINGS, HELD_BACK = 0, 3, 4


def evacuated(plan: Plan, brokers: str | None, topics: Sequence[str]) -> Plan:
    """The plan with the lead taken away from `brokers` (in `topics` only, if any)."""
    if brokers is None:
        if topics:
            raise InvalidInput(["--leader-evac-topics names the topics, --leader-evac-brokers must name the brokers"])
        return plan
    concerned = set(select_topics(plan.after, topics).topics())
    after, errors = evacuate_leadership(plan.after, parse_broker_ids(brokers), concerned.__contains__)
    return replace(plan, after=after, errors=plan.errors + errors)


def deliver(plan: Plan, sizes: Sizes, output: Output) -> None:
    """Report the plan, write it where requested, and exit with 0, 3 or 4."""
    report = report_on(plan, sizes)
    steps = _steps(plan, output)
    held_back = bool(plan.errors) or bool(plan.warnings and not output.ignore_warnings)
    files = _files(output.out, len(steps)) if not held_back else []
    if output.json:
        documents = [] if held_back else [json.loads(render_map(step)) for step in steps]
        typer.echo(json.dumps({**report.to_json(), "steps": documents, "written": [str(file) for file in files]}))
    else:
        show_report(Console(), report)
    for file, step in zip(files, steps, strict=False):
        _write(file, render_map(step))
        typer.echo(f"{file}: {len(step)} partitions", err=True)
    if output.rollback is not None and not held_back:
        _write(output.rollback, render_map(plan.before.changed_from(plan.after) if output.skip_no_ops else plan.before))
    if held_back:
        what = "errors" if plan.errors else "warnings (--ignore-warnings writes it anyway)"
        typer.echo(f"no plan was written because of {what}", err=True)
        raise typer.Exit(HELD_BACK)
    if not steps:
        typer.echo("nothing changes: no plan was written", err=True)
    raise typer.Exit(WRITTEN_WITH_WARNINGS if plan.warnings else WRITTEN)


def _steps(plan: Plan, output: Output) -> tuple[PartitionMap, ...]:
    if output.phased and output.chunk_step_size:
        raise InvalidInput(["--phased-reassignment and --chunk-step-size are two ways to cut a plan: choose one"])
    if output.chunk_step_size:
        return chunks(plan, output.chunk_step_size)
    steps = phases(plan) if output.phased else (plan.after,)
    if not output.skip_no_ops:
        return steps
    befores = (plan.before, *steps)
    changed = (step.changed_from(before) for before, step in zip(befores, steps, strict=False))
    return tuple(step for step in changed if step)


def _files(out: Path | None, steps: int) -> list[Path]:
    if out is None:
        return []
    return [out] if steps == 1 else [out.with_stem(f"{out.stem}-{number}") for number in range(1, steps + 1)]


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput([f"{file}: cannot be written: {error}"]) from error
