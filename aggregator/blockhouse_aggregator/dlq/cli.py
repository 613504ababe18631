"""Messages that could not be loaded: list them, show one, send them again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from blockhouse.cli.tables import Wide, print_table
from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.dlq.letters import Letter, Selection
from blockhouse_aggregator.dlq.listing import letters_table
from blockhouse_aggregator.dlq.log import BATCH, Resender, read
from blockhouse_aggregator.dlq.stored import loaded
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.reachable import unreachable, without

app = typer.Typer(
    no_args_is_help=True,
    help="Messages that could not be loaded: list, show, send again.",
    epilog="Example: blockhouse dlq list --config aggregator.yaml",
)

Config = Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of any aggregator of the shard.")]
OneStream = Annotated[str, typer.Option("--stream", help="Only from cluster/topic/partition.")]
OneTable = Annotated[str, typer.Option("--table", help="Only for this `database.table`.")]
OneReason = Annotated[str, typer.Option("--reason", help="Only for this reason, e.g. OutOfRange.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many, oldest first.")]

PARTIAL = 3
"""Exit code: what is shown is right, and not all there is."""
_EXCERPT = 256


@app.command("list")
def list_letters(
    config: Config,
    stream: OneStream = "",
    table: OneTable = "",
    reason: OneReason = "",
    replayed: Annotated[bool, typer.Option("--all", help="Also those sent again or loaded after all.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    limit: Limit = 100,
    wide: Wide = False,
) -> None:
    """Every message that waits in the dead-letter topics, each once, however often it was written there.

    One that a later owner has loaded after all does not wait: its rows are in the table. Exit code 3 when a Kafka
    cluster does not answer: its letters are not shown, those of the others are.

    Example: blockhouse dlq list --config aggregator.yaml --reason OutOfRange
    """
    settings, silent = _reachable(load(config))
    found = _find(settings, Selection(stream=stream, table=table, reason=reason, replayed=replayed))
    done: frozenset[str] = frozenset()
    try:
        done = _loaded(settings, found)
    except BlockhouseError as error:
        text = f"whether some were loaded after all cannot be known now: {error}"
        typer.secho(text, fg=typer.colors.YELLOW, err=True)
    if not replayed:
        found = [letter for letter in found if letter.key not in done]
    if as_json:
        for letter in found[:limit]:
            typer.echo(json.dumps({**_summary(letter), "loaded": letter.key in done}))
        raise typer.Exit(PARTIAL if silent else 0)
    print_table(letters_table(found, done, limit), wide=wide)
    _print_counts(found, limit)
    if silent:
        raise typer.Exit(PARTIAL)


def _reachable(settings: AggregatorConfig) -> tuple[AggregatorConfig, Mapping[str, str]]:
    """The settings with the clusters that answer; the others are named."""
    silent = unreachable(settings.kafka.clusters)
    for name, why in sorted(silent.items()):
        typer.secho(f"not shown: dead letters of Kafka cluster {name}: {why}", fg=typer.colors.RED, err=True)
    return without(settings, silent), silent


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
    if len(found) > 1:
        text = f"{key} is in several topics of that name: state which: {', '.join(letter.key for letter in found)}"
        typer.secho(text, fg=typer.colors.RED, err=True)
        raise typer.Exit(1)
    (letter,) = found
    value = letter.value or b""
    facts = {
        **_summary(letter),
        "message_key": _text(letter.message_key),
        "headers": {name: _text(header) for name, header in letter.headers},
        "value": "null" if letter.value is None else excerpt(value),
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
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would happen.")] = False,
) -> None:
    """Send messages again, unchanged, into the topic and partition they came from: as new messages with new offsets.

    Fix the cause first: a message that fails again becomes a new dead letter. What was sent again is marked in the
    dead-letter topic, in the same transaction, and is not sent a second time.

    Example: blockhouse dlq replay --config aggregator.yaml --table db.clicks --reason UnknownTable --yes
    """
    settings = load(config)
    selection = Selection(frozenset(keys or ()), stream, table, reason)
    if not selection.named:
        raise typer.BadParameter("name messages by their keys, or choose them by --stream, --table or --reason")
    chosen = _find(settings, selection)[:limit]
    if missing := selection.keys - {name for letter in chosen for name in (letter.key, letter.place)}:
        typer.secho(f"not there, or sent again already: {', '.join(sorted(missing))}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1)
    done = _loaded(settings, chosen)
    if done:
        text = f"{len(done)} were loaded after all and are left out: sent again, their rows would be doubled"
        typer.secho(text, fg=typer.colors.YELLOW, err=True)
        chosen = [letter for letter in chosen if letter.key not in done]
    if bare := [letter for letter in chosen if letter.omitted]:
        typer.secho(
            f"{bare[0].key} cannot be sent again: the dead-letter topic had no room for its {bare[0].omitted} bytes."
            f" Produce it again from {bare[0].stream} offset {bare[0].offset}, where it is until retention deletes it"
            f" ({len(bare)} such letters are left out)",
            fg=typer.colors.YELLOW,
            err=True,
        )
        chosen = [letter for letter in chosen if not letter.omitted]
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


def _loaded(settings: AggregatorConfig, letters: Sequence[Letter]) -> frozenset[str]:
    """Keys of those that have rows in their tables. Raises BlockhouseError when that cannot be known."""
    if not letters:
        return frozenset()
    ids = {c.name: ClusterFacts(c).topic_id(settings.kafka.topic) for c in settings.kafka.clusters}
    return loaded(settings.clickhouse, letters, ids)


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
        "detail": letter.detail,
        "time": datetime.fromtimestamp(letter.timestamp_ms / 1000, UTC).isoformat(timespec="seconds"),
        "bytes": letter.size,
        "omitted": letter.omitted,
        "copies": letter.copies,
        "replayed": letter.replayed,
    }


def _print_counts(found: Iterable[Letter], limit: int) -> None:
    counts = Counter(letter.reason for letter in found)
    text = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
    total = counts.total()
    more = f", of which {limit} are shown" if total > limit else ""
    typer.echo(f"{total} dead letter{'' if total == 1 else 's'}{more}{': ' if text else ''}{text}")


def excerpt(value: bytes) -> str:
    """The beginning of a message: as text where all of it is, such as JSON, and as hexadecimal bytes otherwise."""
    rest = " ..." if len(value) > _EXCERPT else ""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value[:_EXCERPT].hex(" ") + rest
    if "".join(text.split()).isprintable():
        return text[:_EXCERPT] + rest
    return value[:_EXCERPT].hex(" ") + rest


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
