"""Sends a generated load and keeps a manifest: one JSON line per message that a broker acknowledged.

What is sent, and in which order, depends on the seed, the schemas and the spec only, never on time.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.producer.transport import Delivery, DeliveryFailed, Transport
from blockhouse_aggregator.produce.pool import Kind, MessagePool

_CHUNK = 4096
_LINGER_MS = 50
"""As producers of much do: brokers work for every request, not for every message."""
_BURST = 0.01
"""Seconds of the load that are sent at once: waiting for each of thousands a second would cost more than sending it."""
_POLL_EVERY = 256
_PATIENCE = 300.0
"""Seconds that a message may wait for its broker: a load must survive the outages it is there to show."""


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """What to send. `tables` maps names to weights; `bad` maps kinds to their share of all messages (0 to 1).

    `rate` is in messages per second, 0 for as fast as possible.
    """

    tables: Mapping[str, float]
    messages: int
    rows_per_message: int = 10
    rate: float = 0.0
    bad: Mapping[Kind, float] = field(default_factory=dict)
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.tables or min(self.tables.values()) < 0 or sum(self.tables.values()) <= 0:
            raise ValueError("tables need weights of 0 or more, and at least one above 0")
        if min(self.bad.values(), default=0) < 0 or sum(self.bad.values()) > 1:
            raise ValueError("shares of bad messages must be 0 or more and at most 1 together")


@dataclass(slots=True)
class LoadResult:
    """Counts of a load, growing while it runs. `rows` are those of good messages; `seconds` is set at the end."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    rows: int = 0
    bad: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Sent:
    table: str
    rows: int
    kind: Kind


class _Recorder:
    """Turns deliveries into counts and manifest lines."""

    def __init__(self, result: LoadResult, manifest: TextIO | None) -> None:
        self._result = result
        self._manifest = manifest
        self._ends: dict[_Sent, str] = {}

    def __call__(self, delivery: Delivery) -> None:
        sent: _Sent = delivery.tag
        if delivery.error is not None:
            self._result.failed += 1
            return
        self._result.acknowledged += 1
        if sent.kind is Kind.GOOD:
            self._result.rows += sent.rows
        else:
            self._result.bad += 1
        if self._manifest is not None:
            end = self._ends.get(sent)
            if end is None:
                what = {"table": sent.table, "rows": sent.rows, "kind": sent.kind.value}
                end = self._ends[sent] = json.dumps(what)[1:]
            self._manifest.write(
                f'{{"cluster": "{delivery.cluster}", "topic": "{delivery.topic}", "partition": {delivery.partition}, '
                f'"offset": {delivery.offset}, {end}\n'
            )


def generate(
    spec: LoadSpec,
    clusters: Sequence[KafkaCluster],
    topic: str,
    pools: Mapping[str, MessagePool],
    *,
    manifest: TextIO | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[LoadResult], None] = lambda _: None,
) -> LoadResult:
    """Send the load, evenly over clusters and partitions, until it is all out or `stop()`; then wait for every report.

    `pools` has a pool for each of `spec.tables`. Raises Retryable when a cluster or its topic cannot be reached at the
    start, or when messages have no report after five minutes; those that failed are counted in the result.
    """
    result = LoadResult()
    record = _Recorder(result, manifest)
    transports = [
        Transport([cluster], topic, delivery_timeout=_PATIENCE, on_delivery=record, settings={"linger.ms": _LINGER_MS})
        for cluster in clusters
    ]
    targets = _targets(transports)
    started = time.monotonic()
    try:
        for value, headers, sent in _messages(spec, pools):
            if stop():
                break
            transport, partition = next(targets)
            transport.send(value, headers, partition=partition, tag=sent)
            result.sent += 1
            due = started + result.sent / spec.rate if spec.rate else 0.0
            if result.sent % _POLL_EVERY == 0 or due - time.monotonic() > _BURST:
                _wait(transports, due)
                progress(result)
    finally:
        _flush(transports)
    result.seconds = time.monotonic() - started
    progress(result)
    return result


def _messages(spec: LoadSpec, pools: Mapping[str, MessagePool]) -> Iterator[tuple[bytes, dict[str, str], _Sent]]:
    rng = random.Random(spec.seed)
    names, weights = list(spec.tables), list(spec.tables.values())
    kinds = [Kind.GOOD, *spec.bad]
    shares = [max(0.0, 1 - sum(spec.bad.values())), *spec.bad.values()]
    rows = spec.rows_per_message
    tags = {(name, kind): _Sent(name, rows, kind) for name in names for kind in kinds}
    for start in range(0, spec.messages, _CHUNK):
        count = min(_CHUNK, spec.messages - start)
        chosen = zip(rng.choices(names, weights, k=count), rng.choices(kinds, shares, k=count), strict=True)
        for name, kind in chosen:
            pool = pools[name]
            if kind is Kind.GOOD:
                yield pool.message(rows), pool.headers, tags[name, kind]
            else:
                yield *pool.bad_message(kind, rows), tags[name, kind]


def _targets(transports: Sequence[Transport]) -> Iterator[tuple[Transport, int]]:
    """Every partition of every cluster in turn, clusters alternating."""
    counts = [transport.partitions() for transport in transports]
    turn = 0
    while True:
        for transport, partitions in zip(transports, counts, strict=True):
            yield transport, turn % partitions
        turn += 1


def _wait(transports: Sequence[Transport], due: float) -> None:
    """Carry out reports, at least once, until `due` (monotonic seconds)."""
    while True:
        left = max(0.0, due - time.monotonic())
        for transport in transports:
            transport.poll(min(left, 0.1) / len(transports))
        if left <= 0.001:
            return


def _flush(transports: Sequence[Transport]) -> None:
    for transport in transports:
        try:
            transport.flush(_PATIENCE)
        except DeliveryFailed:
            continue  # every failure was reported to the recorder, which counts them
