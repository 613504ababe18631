"""Status pages of aggregators as tables of 80 columns. Pure: it opens no connection."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from blockhouse.cli.unowned import Unowned, unowned
from blockhouse.contract.aggregator import LaggingTable, StatusPage, StreamStatus
from blockhouse.contract.notices import TableLetters

PASSING = ("", "CatchingUp", "Inserting", "Replaying", "NotChecked")
"""Reasons of tables that pass by themselves."""
BARS = "▁▂▃▄▅▆▇█"
_LOOKS = 12
"""How many of the last looks a sparkline has."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One aggregator: its `page`, or None and why there is none."""

    address: str
    page: StatusPage | None
    error: str

    @property
    def troubled(self) -> bool:
        """Whether something stands still, is stopped or waits for a person, or it stays out of its groups."""
        return self.page is not None and any(True for _ in troubles(self.page))

    def written(self) -> dict[str, Any]:
        """For --json."""
        return {
            "address": self.address,
            "error": self.error,
            "status": self.page.written() if self.page is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a resource, as Kubernetes has it."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the pipeline in Kubernetes."""

    kind: str
    name: str
    conditions: tuple[Condition, ...]

    @property
    def ready(self) -> Condition:
        """Whether it is ready, and why not."""
        unknown = Condition("Ready", "Unknown", "NotReported", "no operator has reported on it yet")
        return next((each for each in self.conditions if each.type == "Ready"), unknown)


@dataclass(frozen=True, slots=True)
class Found:
    """All that was asked: aggregators and, of a pipeline in Kubernetes, its resources."""

    asked: Sequence[Asked]
    resources: Sequence[Resource] = ()

    @property
    def unowned(self) -> list[Unowned]:
        """The streams that none of the aggregators that answered owns."""
        return unowned([each.page for each in self.asked if each.page is not None])

    def written(self) -> dict[str, Any]:
        """For --json."""
        return {
            "aggregators": [each.written() for each in self.asked],
            "resources": [asdict(each) for each in self.resources],
            "unowned": [asdict(each) for each in self.unowned],
        }


@dataclass(slots=True)
class History:
    """The lag of streams over the last looks."""

    _lags: dict[str, deque[int]] = field(default_factory=dict)

    def add(self, asked: Sequence[Asked]) -> None:
        """Remember what was seen now."""
        for _, stream in streams_of(asked):
            if stream.lag is not None:
                self._lags.setdefault(stream.stream, deque(maxlen=_LOOKS)).append(stream.lag)

    def spark(self, stream: str) -> str:
        """A stream's lag as bars, the newest last, the highest its largest."""
        lags = self._lags.get(stream, deque())
        most = max(lags, default=0)
        return "".join(BARS[(len(BARS) - 1) * lag // most if most else 0] for lag in lags)


def streams_of(asked: Sequence[Asked]) -> list[tuple[str, StreamStatus]]:
    """Every stream with its owner's replica, by name."""
    found = [(each.page.replica, stream) for each in asked if each.page is not None for stream in each.page.streams]
    return sorted(found, key=lambda owned: owned[1].stream)


def troubles(page: StatusPage) -> Iterator[str]:
    """One line for each thing that needs a person: what, since when, why."""
    if not page.ready:
        yield _start(page)
    if page.away:
        yield f"{page.replica} stays out of its consumer groups: {page.away}"
    if page.unfit:
        yield f"{page.replica}: its ClickHouse takes no rows: {page.unfit}"
    for stream in page.streams:
        if stream.stopped is not None:
            yield f"{stream.stream} is stopped: {stream.stopped.reason}: {stream.stopped.message}"
        elif (still := stream.standing) is not None:
            yield f"{stream.stream} stands still since {_utc(still.since_ms)}: {still.reason}: {still.text}"
        yield from (
            f"{stream.stream} {table.table}: {table.pending} messages wait{_since(table)}: {table.reason}"
            for table in stream.lagging_tables
            if table.reason not in PASSING
        )


def letters_of(asked: Sequence[Asked]) -> Iterator[str]:
    """One line for each table with dead letters of the last day: they need a person, and stop nothing."""
    by_table: dict[str, list[TableLetters]] = {}
    for _, stream in streams_of(asked):
        for letters in stream.letters:
            by_table.setdefault(letters.table, []).append(letters)
    for table, found in sorted(by_table.items()):
        count, last = sum(each.messages for each in found), max(found, key=lambda each: each.last_ms)
        of = table or "no table"
        choice = f" --table {table}" if table else ""
        yield (
            f"{count} dead letter{'' if count == 1 else 's'} of {of}, the last at {_utc(last.last_ms)}"
            f" ({last.reason}): blockhouse dlq list{choice}"
        )


def render(found: Found, history: History | None = None) -> RenderableType:
    """Resources, aggregators, streams, and what needs a person."""
    asked, missing = found.asked, found.unowned
    parts: list[RenderableType] = [_resources(found.resources)] if found.resources else []
    parts += [_aggregators(asked, missing), _streams(asked, missing, history)]
    for each in asked:
        if each.page is None:
            parts.append(Text(f"{each.address} does not answer: {each.error}", style="red"))
            continue
        for name, why in sorted(each.page.cluster_errors.items()):
            parts.append(Text(f"{each.page.replica}: Kafka cluster {name}: {why}", style="red"))
        parts += [Text(line, style="red") for line in troubles(each.page)]
    if missing:
        answered = sum(each.page is not None for each in asked)
        streams = f"{len(missing)} stream{'' if len(missing) == 1 else 's'}"
        text = f"{streams} without an owner (-) among the {answered} of {len(asked)} aggregators that answered"
        parts.append(Text(text, style="red"))
    parts += [Text(line, style="yellow") for line in letters_of(asked)]
    return Group(*parts)


def _resources(resources: Sequence[Resource]) -> Table:
    table = Table("kind", "name", "ready", "reason", "message")
    for each in resources:
        ready = each.ready
        style = None if ready.status == "True" else "red"
        table.add_row(each.kind, each.name, ready.status, ready.reason, ready.message, style=style)
    return _folded(table)


def _start(page: StatusPage) -> str:
    """What the start of one that is not ready is at."""
    waits = page.waits
    if waits is None:
        return f"{page.replica} is starting"
    return f"{page.replica} is starting and waits for {waits.what} since {_utc(waits.since_ms)}: {waits.error or '...'}"


def _aggregators(asked: Sequence[Asked], missing: Sequence[Unowned]) -> Table:
    table = Table("pipeline", "shard", "replica", "state", "streams", "lag", "behind")
    for each in asked:
        page = each.page
        if page is None:
            table.add_row("", "", each.address, "silent", "", "", "", style="red")
            continue
        lags = [stream.lag for stream in page.streams]
        unknown = None in lags or page.cluster_errors
        lag = str(sum(lag or 0 for lag in lags)) + (" ?" if unknown else "")
        row = (page.pipeline, page.shard, page.replica, _state(page), str(len(page.streams)), lag)
        table.add_row(*row, _oldest(page), style="red" if page.unfit else None)
    for (pipeline, shard), streams in Counter((each.pipeline, each.shard) for each in missing).items():
        table.add_row(pipeline, shard, "-", "unowned", str(streams), "?", "?", style="red")
    return _folded(table)


def _oldest(page: StatusPage) -> str:
    """The greatest age of its streams; with a question mark while that of a stream is not known, which may be more."""
    ages = [stream.lag_seconds for stream in page.streams]
    known = [age for age in ages if age is not None]
    if len(known) == len(ages) and not page.cluster_errors:
        return _seconds(max(known)) if known else ""
    return f"{_seconds(max(known))} ?" if any(known) else "?"


def _state(page: StatusPage) -> str:
    if not page.ready:
        return "starting"
    if page.suspended:
        return "suspended"
    if page.away:
        return "out"
    return "unfit" if page.unfit else "ready"


def _streams(asked: Sequence[Asked], missing: Sequence[Unowned], history: History | None) -> Table:
    table = Table("stream", "owner", "state", "lag", "behind", "in/s", "stored/s", "flying")
    for replica, stream in streams_of(asked):
        lag = "?" if stream.lag is None else str(stream.lag)
        spark = f" {history.spark(stream.stream)}" if history is not None else ""
        rates = (_number(stream.arriving), _number(stream.storing), str(len(stream.blocks)))
        style = "red" if stream.stopped is not None or stream.standing is not None else None
        cells = (stream.stream, replica, stream.state.value, lag + spark, _seconds(stream.lag_seconds), *rates)
        table.add_row(*cells, style=style)
    for each in missing:
        table.add_row(each.stream, "-", "unowned", "?", "?", "?", "?", "?", style="red")
    return _folded(table)


def _folded(table: Table) -> Table:
    for column in table.columns:
        column.overflow = "fold"
    return table


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _seconds(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f} s"


def _since(table: LaggingTable) -> str:
    return f" since {_utc(table.since_ms)}" if table.since_ms else ""


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
