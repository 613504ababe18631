"""What a verifier remembers across a restart, as keys and JSON values of a compacted topic. Pure.

A value of an unknown shape is dropped, not guessed at: the stream is then known again from its next commit on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from blockhouse.errors import BlockhouseError
from blockhouse.metadata import codec
from blockhouse.metadata.reading import read
from blockhouse.streams import StreamId
from blockhouse_aggregator.verifier.anomaly import (
    LASTING,
    Anomaly,
    CommitCompacted,
    EpochReaches,
    Finding,
    HolesAreThere,
    Kind,
    LogBegins,
)
from blockhouse_aggregator.verifier.checks.standing import Standing
from blockhouse_aggregator.verifier.streams import ClusterStreams
from blockhouse_aggregator.verifier.watched import LogProgress, WatchedStream

Item = tuple[str, bytes | None]
_STREAM = ("text", "offset", "log_partition", "log_offset", "at_ms", "missing", "commits", "unseen", "forgotten")
_STREAM_LATER = ("chosen", "epoch")
"""Added after the first release: a checkpoint may lack them."""
_EXCUSES = {kind.__name__: kind for kind in (LogBegins, HolesAreThere, EpochReaches, CommitCompacted)}


def stream_item(stream: WatchedStream, clock_offset: float) -> Item:
    """`clock_offset` is Unix time less steady time, in seconds: steady clocks do not survive a restart."""
    standing = stream.standing
    value = {name: getattr(stream, name) for name in (*_STREAM, *_STREAM_LATER)} | {
        "group": stream.group,
        "topic": stream.id.topic,
        "partition": stream.id.partition,
        "position": standing.position,
        "suspicions": [_anomaly_value(anomaly) for anomaly in stream.suspicions],
        "end": standing.end,
        "topic_id": standing.topic_id,
        "moved": standing.moved_at + clock_offset,
        "tables": {table: [begin, since + clock_offset] for table, (begin, since) in standing.tables.items()},
    }
    return f"stream/{stream.group}/{stream.id.topic}/{stream.id.partition}", _json(value)


def anomaly_item(anomaly: Anomaly) -> Item:
    return f"anomaly/{anomaly.id}", _json(_anomaly_value(anomaly))


def _anomaly_value(anomaly: Anomaly) -> dict[str, Any]:
    value = asdict(anomaly) | {"stream": str(anomaly.stream)}
    if (excuse := anomaly.finding.unless) is not None:
        value["finding"]["unless"] = {"kind": type(excuse).__name__, **asdict(excuse)}
    return value


def forgotten_item(anomaly_id: str) -> Item:
    """What removes an anomaly from the topic."""
    return f"anomaly/{anomaly_id}", None


def progress_items(streams: ClusterStreams) -> Iterator[Item]:
    """Written after everything else: what lies before these positions is in the items before them."""
    for partition, progress in streams.progress.items():
        yield f"progress/{partition}", _json({"next": progress.next, "missing": progress.missing})
    counts = {"counts": dict(streams.counts), "earliest_ms": streams.earliest_ms, "latest_ms": streams.latest_ms}
    yield "counts", _json(counts)


def recall(items: Iterable[tuple[str, bytes]], into: ClusterStreams, clock_offset: float) -> list[Anomaly]:
    """Fill `into` with what the items hold; returns the anomalies that were reported already."""
    anomalies: list[Anomaly] = []
    for key, raw in items:
        kind, _, _ = key.partition("/")
        try:
            value = json.loads(raw)
            if kind == "stream":
                _recall_stream(value, into, clock_offset)
            elif kind == "anomaly":
                anomalies.append(_anomaly(value))
            elif kind == "progress":
                into.progress[int(key.partition("/")[2])] = LogProgress(value["next"], value["missing"])
            elif kind == "counts":
                into.counts.update(value["counts"])
                into.earliest_ms, into.latest_ms = value["earliest_ms"], value["latest_ms"]
        except (ValueError, KeyError, TypeError, AttributeError, BlockhouseError):
            into.counts["checkpointsDropped"] += 1
    for anomaly in anomalies:
        stream = into.streams.get((anomaly.group, anomaly.stream.topic, anomaly.stream.partition))
        if stream is not None and anomaly.finding.kind in LASTING and anomaly.ended_ms is None:
            stream.lasting[anomaly.finding.kind, anomaly.finding.table] = anomaly
    return anomalies


def _recall_stream(value: Mapping[str, Any], into: ClusterStreams, clock_offset: float) -> None:
    stream = WatchedStream(StreamId(into.cluster, value["topic"], value["partition"]), value["group"])
    for name in _STREAM:
        setattr(stream, name, value[name])
    for name in _STREAM_LATER:
        setattr(stream, name, value.get(name, getattr(stream, name)))
    stream.suspicions = [_anomaly(item) for item in value.get("suspicions", ())]
    text = stream.text
    if text:
        stream.known = read(text) if text.startswith("2;") else codec.decode(text)  # type: ignore[assignment]
    stream.standing = Standing(
        value["position"],
        value["moved"] - clock_offset,
        end=value.get("end", -1),
        topic_id=value.get("topic_id", ""),
        tables={table: (begin, since - clock_offset) for table, (begin, since) in value["tables"].items()},
    )
    into.remember(stream)


def _anomaly(value: Mapping[str, Any]) -> Anomaly:
    finding = {k: v for k, v in value["finding"].items() if k != "unless_log_begins"}
    if excuse := finding.get("unless"):
        finding["unless"] = _EXCUSES[excuse["kind"]](**{k: v for k, v in excuse.items() if k != "kind"})
    return Anomaly(
        **{k: v for k, v in value.items() if k not in ("finding", "stream")},
        finding=Finding(**(finding | {"kind": Kind(finding["kind"])})),
        stream=StreamId.parse(value["stream"]),
    )


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
