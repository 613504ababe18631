"""Messages that could not be loaded: list them, look at one, send them again."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse_aggregator.dlq.letters import Letter, Selection
from blockhouse_aggregator.dlq.log import BATCH, Resender, read

app = typer.Typer(no_args_is_help=True, help="Messages that could not be loaded: list, show, send again.")

Config = Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of any aggregator of the shard.")]
OneStream = Annotated[str, typer.Option("--stream", help="Only from cluster/topic/partition.")]
OneTable = Annotated[str, typer.Option("--table", help="Only for this `database.table`.")]
OneReason = Annotated[str, typer.Option("--reason", help="Only for this reason, e.g. OutOfRange.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many, oldest first.")]

_WIDTH = 200
_EXCERPT = 256


@app.command("list")
def list_letters(
    config: Config,
    stream: OneStream = "",
    table: OneTable = "",
    reason: OneReason = "",
    replayed: Annotated[bool, typer.Option("--all", help="Also those that were sent again already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    limit: Limit = 100,
) -> None:
    """Every message that waits in the dead-letter topics, each once, however often it was written there.

    Example: blockhouse dlq list --config aggregator.yaml --reason OutOfRange
    """
    found = _find(load(config), Selection(stream=stream, table=table, reason=reason, replayed=replayed))
    if as_json:
        for letter in found[:limit]:
            typer.echo(json.dumps(_summary(letter)))
        return
    shown = Table("key", "table", "reason", "time", "bytes", "copies", "sent again as")
    for letter in found[:limit]:
        facts = _summary(letter)
        shown.add_row(*(str(facts[name]) for name in ("key", "table", "reason", "time", "bytes", "copies", "replayed")))
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(shown)
    _tell_counts(found, limit)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="cluster/topic/partition/offset, as `list` prints it.")],
    config: Config,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the value, unchanged, here.")] = None,
) -> None:
    """One message with everything its producer sent.

    Example: blockhouse dlq show a/events-01/3/1274 --config aggregator.yaml --output value.bin
    """
    selection = Selection(keys=frozenset({key}), replayed=True)
    found = _find(load(config), selection, values=True)
    if not found:
        typer.secho(f"no dead letter {key}: see `blockhouse dlq list --all`", fg=typer.colors.RED, err=True)
        raise typer.Exit(1)
    (letter,) = found
    value = letter.value or b""
    facts = {
        **_summary(letter),
        "message_key": _text(letter.message_key),
        "headers": {name: _text(header) for name, header in letter.headers},
        "value": "null"
        if letter.value is None
        else value[:_EXCERPT].hex(" ") + (" ..." if len(value) > _EXCERPT else ""),
    }
    typer.echo(json.dumps(facts, indent=2))
    if output is not None:
        output.write_bytes(value)


@app.command()
def replay(
    config: Config,
    keys: Annotated[list[str] | None, typer.Argument(help="Keys, as `list` prints them.")] = None,
    stream: OneStream = "",
    table: OneTable = "",
    reason: OneReason = "",
    limit: Limit = 1000,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what would happen.")] = False,
) -> None:
    """Send messages again, unchanged, into the topic and partition they came from: as new messages with new offsets.

    Mend the cause first: a message that fails again becomes a new dead letter. What was sent again is marked in the
    dead-letter topic, in the same transaction, and is not sent a second time.

    Example: blockhouse dlq replay --config aggregator.yaml --table db.clicks --reason UnknownTable --yes
    """
    settings = load(config)
    selection = Selection(frozenset(keys or ()), stream, table, reason)
    if not selection.named:
        raise typer.BadParameter("name messages by their keys, or choose them by --stream, --table or --reason")
    chosen = _find(settings, selection)[:limit]
    if missing := selection.keys - {letter.key for letter in chosen}:
        typer.secho(f"not there, or sent again already: {', '.join(sorted(missing))}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1)
    for name, count in sorted(Counter((str(c.stream), c.table, c.reason) for c in chosen).items()):
        typer.echo(f"{count} of {name[0]}, table {name[1] or '(none)'}, {name[2]}")
    if not chosen:
        typer.echo("No dead letter is chosen: there is nothing to send.")
    elif not yes:
        typer.echo(f"{len(chosen)} messages would be sent again. Nothing was sent; add --yes to do it.")
        return
    for cluster in settings.kafka.clusters:
        mine = [letter for letter in chosen if letter.stream.cluster == cluster.name]
        if mine:
            _send(cluster, settings.kafka.dead_letters, mine)


def _send(cluster: KafkaCluster, topic: str, letters: Sequence[Letter]) -> None:
    """Read again under the fence: another operator may have sent some of them since they were chosen."""
    resender = Resender(cluster, topic)
    resender.start()
    selection = Selection(keys=frozenset(letter.key for letter in letters))
    waiting = read(cluster, topic, selection, values=True).result()
    for at in range(0, len(waiting), BATCH):
        for key, place in resender.send(waiting[at : at + BATCH]).items():
            typer.echo(f"{key} was sent again as {place}")


def _find(settings: AggregatorConfig, selection: Selection, *, values: bool = False) -> list[Letter]:
    topic = settings.kafka.dead_letters
    return [
        letter
        for cluster in settings.kafka.clusters
        for letter in read(cluster, topic, selection, values=values).result()
        if letter.stream.cluster == cluster.name
    ]


def _summary(letter: Letter) -> dict[str, Any]:
    return {
        "key": letter.key,
        "table": letter.table,
        "reason": letter.reason,
        "time": datetime.fromtimestamp(letter.timestamp_ms / 1000, UTC).isoformat(timespec="seconds"),
        "bytes": letter.size,
        "copies": letter.copies,
        "replayed": letter.replayed,
    }


def _tell_counts(found: Iterable[Letter], limit: int) -> None:
    counts = Counter(letter.reason for letter in found)
    text = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
    total = counts.total()
    more = f", of which {limit} are shown" if total > limit else ""
    typer.echo(f"{total} dead letters{more}{': ' if text else ''}{text}")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
