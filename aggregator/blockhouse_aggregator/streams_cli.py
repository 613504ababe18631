"""Show the streams of a pipeline, and let an operator decide about those that stand still."""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.streams import StreamId
from blockhouse_aggregator.block_decisions import recut, resolve
from blockhouse_aggregator.coordination.markers import Decision, Decisions, StreamMarkers
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.hand_back import hand_back
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.group import Committed
from blockhouse_aggregator.kafka.group_offsets import committed_offsets
from blockhouse_aggregator.protocol import takeover
from blockhouse_aggregator.protocol.takeover import Facts, NeedsSurvey, Start, Stop
from blockhouse_aggregator.runtime.arrival import facts_of
from blockhouse_aggregator.runtime.ports import StreamFacts
from blockhouse_aggregator.verifier.cli import history

app = typer.Typer(no_args_is_help=True, help="The streams of a pipeline, and decisions about those that stand still.")
app.command()(history)

_WIDTH = 160
"""Columns when the output is no terminal: no name should be cut there."""

app.command()(resolve)
app.command()(recut)
app.command("hand-back")(hand_back)

Config = Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of any aggregator of the shard.")]


@dataclass(frozen=True, slots=True)
class _Stream:
    """A stream as an owner would find it now."""

    id: StreamId
    facts: Facts
    decision: str
    outcome: Start | Stop | NeedsSurvey


@app.command("list")
def list_streams(config: Config) -> None:
    """What is committed for every stream of the shard, and whether its next owner would go on.

    Example: blockhouse streams list --config aggregator.yaml
    """
    settings = load(config)
    with Session(settings.zookeeper) as session:
        streams = _examine(settings, session)
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
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)
    for stream in streams:
        if isinstance(stream.outcome, Stop):
            typer.echo(f"{stream.id}: {stream.outcome.reason}: {stream.outcome.message}")


@app.command()
def accept(
    stream: Annotated[str, typer.Argument(help="cluster/topic/partition")],
    reason: Annotated[str, typer.Argument(help="The reason for which it stands still, e.g. OffsetsReset.")],
    config: Config,
    start: Annotated[int | None, typer.Option("--from", min=0, help="Start here; default: the earliest.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what would happen.")] = False,
) -> None:
    """Let a stopped stream start afresh, although rows may be doubled or missing: audit afterwards.

    Its owner takes the decision up within seconds. What was in flight is forgotten.

    Example: blockhouse streams accept a/events-01/3 OffsetsReset --from 1200 --config aggregator.yaml --yes
    """
    settings = load(config)
    wanted = StreamId.parse(stream)
    with Session(settings.zookeeper) as session:
        found = next((each for each in _examine(settings, session) if each.id == wanted), None)
        if found is None:
            raise typer.BadParameter(f"no stream {stream} in this shard", param_hint="STREAM")
        _refuse_wrong_answers(found, reason, start)
        begin = found.facts.log_begin if start is None else max(start, found.facts.log_begin)
        typer.echo(f"{stream} stands still: {reason}. It would start afresh at offset {begin} of {_range(found)}.")
        if not yes:
            typer.echo("Nothing was changed; add --yes to do it.")
            return
        action = f"accept {reason}" if start is None else f"accept {reason} from {start}"
        decision = Decision(action=action, by=getpass.getuser(), at_ms=time.time_ns() // 1_000_000)
        Decisions(session).put(f"stream {stream}", decision)
    typer.echo(f"Recorded. Compare with `blockhouse audit --config {config}` once it has caught up.")


def _refuse_wrong_answers(found: _Stream, reason: str, start: int | None) -> None:
    """A decision about another problem than the present one must not wait for the day on which it fits."""
    if not isinstance(found.outcome, Stop):
        raise typer.BadParameter(f"{found.id} does not stand still: there is nothing to accept", param_hint="STREAM")
    if found.outcome.reason != reason:
        text = f"{found.id} stands still for another reason: {found.outcome.reason}: {found.outcome.message}"
        raise typer.BadParameter(text, param_hint="REASON")
    given = replace(found.facts, accepted=reason, accepted_from=start)
    if isinstance(_decide(given), Stop):
        raise typer.BadParameter(f"{reason} cannot be accepted: remove its cause", param_hint="REASON")
    if start is not None and start > found.facts.log_end:
        raise typer.BadParameter(f"{start} is beyond the log, {_range(found)}", param_hint="--from")


def _next_owner(outcome: Start | Stop | NeedsSurvey) -> str:
    match outcome:
        case Stop():
            return f"stops: {outcome.reason}"
        case NeedsSurvey():
            return "takes over another aggregator's stream"
        case Start():
            return "goes on"


def _range(found: _Stream) -> str:
    return f"[{found.facts.log_begin}, {found.facts.log_end})"


def _decide(facts: Facts) -> Start | Stop | NeedsSurvey:
    return takeover.take_over(facts, replica="", epoch=0, now_ms=0)


def _examine(settings: AggregatorConfig, session: Session) -> Sequence[_Stream]:
    """Every stream of the shard's topic, judged as its next owner would judge it without a decision."""
    markers, decisions = StreamMarkers(session), Decisions(session)
    found = []
    for cluster in settings.kafka.clusters:
        facts = ClusterFacts(cluster)
        topic = facts.topic(settings.kafka.topic)
        committed = committed_offsets(cluster, settings.kafka.group)
        for partition in range(topic.partitions):
            stream = StreamId(cluster.name, settings.kafka.topic, partition)
            at = committed.get(stream, Committed(None))
            begin, end = facts.bounds(stream)
            known = StreamFacts(at.offset, at.metadata or "", begin, end, topic.topic_id, topic.compacted)
            marker = markers.get(stream)
            decision = decisions.get(f"stream {stream}")
            judged = facts_of(known, marker.topic_id if marker else None, "")
            found.append(_Stream(stream, judged, decision.action if decision else "", _decide(judged)))
    return found
