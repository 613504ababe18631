"""Show the streams of a pipeline, and let an operator decide about those that stand still."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from blockhouse.cli.tables import Wide, print_table
from blockhouse.config.load import load
from blockhouse.streams import StreamId
from blockhouse_aggregator.commands.block_decisions import recut, resolve
from blockhouse_aggregator.commands.examined import Examined, examine
from blockhouse_aggregator.commands.hand_back import hand_back
from blockhouse_aggregator.commands.leftover_rows import leftover_rows
from blockhouse_aggregator.commands.table_claims import claims
from blockhouse_aggregator.coordination.markers import Decisions, stream_subject
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.reachable import unreachable
from blockhouse_aggregator.protocol import takeover
from blockhouse_aggregator.protocol.takeover import NeedsSurvey, Start, Stop
from blockhouse_aggregator.runtime.stream import acceptance
from blockhouse_aggregator.runtime.stream.acceptance import NotAcceptable
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
    why: Annotated[str, typer.Option(help="Why you do it: it is logged and shown, with your name. With --yes.")] = "",
    start: Annotated[int | None, typer.Option("--from", min=0, help="Start here; default: the earliest.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would happen.")] = False,
) -> None:
    """Break glass: let a stopped stream start afresh, although rows may be doubled or missing. Audit afterwards.

    Its owner takes the decision up within seconds. What was in flight is forgotten. MarkerMissing alone lets it
    continue where it is, with what is in flight.

    Example: blockhouse streams accept a/events-01/3 OffsetsReset --from 1200 --config aggregator.yaml --why "offsets
    were reset by mistake, everything below is stored" --yes
    """
    settings = load(config)
    requested = StreamId.parse(stream)
    with Session(settings.zookeeper) as session:
        found = next((each for each in examine(settings, session) if each.id == requested), None)
        if found is None:
            raise typer.BadParameter(f"no stream {stream} in this shard", param_hint="STREAM")
        typer.echo(f"{stream} stands still: {reason}. It would {_would(found, reason, start)}.")
        if reason == takeover.LOG_TRUNCATED:
            begin = acceptance.begin(found.facts, start)
            for line in leftover_rows(settings, session, requested, found.facts.topic_id, begin):
                typer.echo(line)
        if not yes:
            typer.echo("Nothing was changed; add --yes to do it.")
            return
        if not why:
            raise typer.BadParameter("state why: it is logged and shown beside your name", param_hint="--why")
        decided = acceptance.decision(reason, start, getpass.getuser(), why, time.time_ns() // 1_000_000)
        Decisions(session).put(stream_subject(requested), decided)
    typer.echo(f"Recorded. Compare with `blockhouse audit --config {config}` once it has caught up.")


_HINTS = {"stream": "STREAM", "reason": "REASON", "offset": "--from"}


def _would(found: Examined, reason: str, start: int | None) -> str:
    try:
        return acceptance.would(found.id, found.facts, reason, start)
    except NotAcceptable as error:
        raise typer.BadParameter(str(error), param_hint=_HINTS[error.about]) from error


def _next_owner(outcome: Start | Stop | NeedsSurvey) -> str:
    match outcome:
        case Stop():
            return f"stops: {outcome.reason}"
        case NeedsSurvey():
            return "takes over another aggregator's stream"
        case Start():
            return "continues"
