"""Show the streams of a pipeline, and let an operator decide about those that stand still."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from blockhouse.cli.tables import Wide, print_table
from blockhouse.config.load import load
from blockhouse.streams import StreamId
from blockhouse_aggregator.commands.block_decisions import recut, resolve
from blockhouse_aggregator.commands.examined import Examined, decide, examine
from blockhouse_aggregator.commands.hand_back import hand_back
from blockhouse_aggregator.commands.leftover_rows import leftover_rows
from blockhouse_aggregator.commands.table_claims import claims
from blockhouse_aggregator.coordination.markers import Decision, Decisions
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.reachable import unreachable
from blockhouse_aggregator.protocol import takeover
from blockhouse_aggregator.protocol.takeover import NeedsSurvey, Start, Stop
from blockhouse_aggregator.verifier.cli import history

app = typer.Typer(no_args_is_help=True, help="The streams of a pipeline, and decisions about those that stand still.")
app.command()(history)

PARTIAL = 3
"""Exit code: what is shown is right, and not all there is."""

app.command()(resolve)
app.command()(recut)
app.command("hand-back")(hand_back)
app.command()(claims)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Config = Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of any aggregator of the shard.")]


@app.command("list")
def list_streams(config: Config, wide: Wide = False, as_json: AsJson = False) -> None:
    """What is committed for every stream of the shard, and whether its next owner would continue.

    Exit code 3 when a Kafka cluster does not answer: its streams are not shown, those of the others are.

    Example: blockhouse streams list --config aggregator.yaml
    """
    settings = load(config)
    silent = unreachable(settings.kafka.clusters)
    with Session(settings.zookeeper) as session:
        streams = examine(settings, session, without=silent)
    if as_json:
        typer.echo(json.dumps([_as_json(stream) for stream in streams], indent=2))
    else:
        _show(streams, wide=wide)
    for name, why in sorted(silent.items()):
        typer.secho(f"not shown: streams of Kafka cluster {name}: {why}", fg=typer.colors.RED, err=True)
    if silent:
        raise typer.Exit(PARTIAL)


def _as_json(stream: Examined) -> dict[str, Any]:
    metadata = stream.facts.metadata
    entries = metadata.tables if metadata else ()
    outcome = stream.outcome
    return {
        "stream": str(stream.id),
        "logBegin": stream.facts.log_begin,
        "logEnd": stream.facts.log_end,
        "committed": stream.facts.offset,
        "position": metadata.position if metadata else None,
        "inFlight": sum(entry.in_flight is not None for entry in entries),
        "lagging": sum(entry.cursor is not None for entry in entries),
        "nextOwner": _next_owner(outcome),
        "stopped": {"reason": outcome.reason, "message": outcome.message} if isinstance(outcome, Stop) else None,
        "decided": stream.decision,
    }


def _show(streams: Sequence[Examined], *, wide: bool) -> None:
    table = Table("stream", "log", "committed", "position", "in flight", "lagging", "next owner", "decided")
    for stream in streams:
        metadata = stream.facts.metadata
        entries = metadata.tables if metadata else ()
        stopped = isinstance(stream.outcome, Stop)
        table.add_row(
            str(stream.id),
            f"{stream.facts.log_begin}..{stream.facts.log_end}",
            "" if stream.facts.offset is None else str(stream.facts.offset),
            str(metadata.position) if metadata else "",
            str(sum(entry.in_flight is not None for entry in entries)),
            str(sum(entry.cursor is not None for entry in entries)),
            _next_owner(stream.outcome),
            stream.decision,
            style="red" if stopped else None,
        )
    print_table(table, wide=wide)
    for stream in streams:
        if isinstance(stream.outcome, Stop):
            typer.echo(f"{stream.id}: {stream.outcome.reason}: {stream.outcome.message}")


@app.command()
def accept(
    stream: Annotated[str, typer.Argument(help="cluster/topic/partition")],
    reason: Annotated[str, typer.Argument(help="The reason for which it stands still, e.g. OffsetsReset.")],
    config: Config,
    start: Annotated[int | None, typer.Option("--from", min=0, help="Start here; default: the earliest.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would happen.")] = False,
) -> None:
    """Let a stopped stream start afresh, although rows may be doubled or missing: audit afterwards.

    Its owner takes the decision up within seconds. What was in flight is forgotten. MarkerMissing alone lets it
    continue where it is, with what is in flight.

    Example: blockhouse streams accept a/events-01/3 OffsetsReset --from 1200 --config aggregator.yaml --yes
    """
    settings = load(config)
    requested = StreamId.parse(stream)
    with Session(settings.zookeeper) as session:
        found = next((each for each in examine(settings, session) if each.id == requested), None)
        if found is None:
            raise typer.BadParameter(f"no stream {stream} in this shard", param_hint="STREAM")
        _refuse_wrong_answers(found, reason, start)
        begin = found.facts.log_begin if start is None else max(start, found.facts.log_begin)
        would = f"start afresh at offset {begin} of {_range(found)}"
        if reason == takeover.MARKER_MISSING:
            would = f"continue from offset {found.facts.offset}, which must be its newest, and get a marker"
        typer.echo(f"{stream} stands still: {reason}. It would {would}.")
        if reason == takeover.LOG_TRUNCATED:
            for line in leftover_rows(settings, session, requested, found.facts.topic_id, begin):
                typer.echo(line)
        if not yes:
            typer.echo("Nothing was changed; add --yes to do it.")
            return
        action = f"accept {reason}" if start is None else f"accept {reason} from {start}"
        decision = Decision(action=action, by=getpass.getuser(), at_ms=time.time_ns() // 1_000_000)
        Decisions(session).put(f"stream {stream}", decision)
    typer.echo(f"Recorded. Compare with `blockhouse audit --config {config}` once it has caught up.")


def _refuse_wrong_answers(found: Examined, reason: str, start: int | None) -> None:
    """A decision about another problem than the present one must not wait for the day on which it fits."""
    if not isinstance(found.outcome, Stop):
        raise typer.BadParameter(f"{found.id} does not stand still: there is nothing to accept", param_hint="STREAM")
    if found.outcome.reason != reason:
        text = f"{found.id} stands still for another reason: {found.outcome.reason}: {found.outcome.message}"
        raise typer.BadParameter(text, param_hint="REASON")
    given = replace(found.facts, accepted=reason, accepted_from=start)
    if isinstance(decide(given), Stop):
        raise typer.BadParameter(f"{reason} cannot be accepted: remove its cause", param_hint="REASON")
    if start is not None and reason == takeover.MARKER_MISSING:
        raise typer.BadParameter(f"{reason} lets a stream continue where it is: leave it out", param_hint="--from")
    if start is not None and start > found.facts.log_end:
        raise typer.BadParameter(f"{start} is beyond the log, {_range(found)}", param_hint="--from")


def _next_owner(outcome: Start | Stop | NeedsSurvey) -> str:
    match outcome:
        case Stop():
            return f"stops: {outcome.reason}"
        case NeedsSurvey():
            return "takes over another aggregator's stream"
        case Start():
            return "continues"


def _range(found: Examined) -> str:
    return f"[{found.facts.log_begin}, {found.facts.log_end})"
