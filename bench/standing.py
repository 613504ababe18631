"""One aggregator by itself: under a steady stream, idle, and with a backlog to drain."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np
from confluent_kafka import KafkaError, Message, Producer

from bench.blockhouse_loader import BlockhouseLoader
from bench.processes import MemoryPeak, cpu_seconds, memory
from bench.testbed import PARTITIONS, table_headers
from blockhouse.contract.aggregator import StreamStatus
from blockhouse.streams import StreamId
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

ROWS = 200_000
"""Rows that are sent again and again: their offsets distinguish them."""
MIB = 1 << 20
LOOK = 0.05
"""Seconds between polls of what is acknowledged; a latency is too long by up to this."""


def idle(loader: BlockhouseLoader, seconds: int) -> dict[str, float]:
    """CPU in cores and memory in MiB, of all processes, with nothing to do."""
    loader.start()
    time.sleep(5)  # the last round's acknowledgement is still to be committed
    before = cpu_seconds(loader.leader)
    started = time.monotonic()
    time.sleep(seconds)
    cores = (cpu_seconds(loader.leader) - before) / (time.monotonic() - started)
    now = memory(loader.leader)
    return {"CPU, cores": cores, "RSS, MiB": now.rss / MIB, "PSS, MiB": now.pss / MIB}


def drain(loader: BlockhouseLoader, size: int) -> dict[str, float]:
    """Peak memory in MiB while `size` bytes of message values are loaded, and the rate."""
    values = list(_up_to(size, loader))
    loader.start(iter(values))
    rows = len(values) * 10
    del values
    started = time.monotonic()
    with MemoryPeak(loader.leader) as sampled:
        loader.begin()
        if not wait_until(lambda: loader.stored() >= rows, timeout=600, interval=0.2):
            raise StackError(f"{loader.stored()} of {rows} rows were stored within ten minutes")
        seconds = time.monotonic() - started
    peak, now = sampled.peak, memory(loader.leader)
    return {
        "rows/s": rows / seconds,
        "peak RSS, MiB": peak.rss / MIB,
        "peak PSS, MiB": peak.pss / MIB,
        "RSS afterwards, MiB": now.rss / MIB,
        "PSS afterwards, MiB": now.pss / MIB,
    }


def _up_to(size: int, loader: BlockhouseLoader) -> Iterator[bytes]:
    total = 0
    for value in cycle(list(loader.data.messages())):
        yield value
        total += len(value)
        if total >= size:
            return


@dataclass(slots=True)
class Acknowledged:
    """When messages became part of what is stored: by stream, the sent offsets' times and how far it has come."""

    sent: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {p: [] for p in range(PARTITIONS)})
    latencies: list[float] = field(default_factory=list)
    _next: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """The producer's report: remember the message's offset and its time in Kafka."""
        if error is not None:
            raise StackError(f"a message was not delivered: {error}")
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.sent[partition].append((offset, message.timestamp()[1]))

    def look(self, streams: Iterable[StreamStatus]) -> None:
        """Take every message below the streams' acknowledged offsets as stored now."""
        now = time.time() * 1000
        for stream in streams:
            partition, stored = StreamId.parse(stream.stream).partition, stream.stored_below or 0
            sent, index = self.sent[partition], self._next[partition]
            while index < len(sent) and sent[index][0] < stored:
                self.latencies.append((now - sent[index][1]) / 1000)
                index += 1
            self._next[partition] = index

    @property
    def complete(self) -> bool:
        return all(self._next[partition] == len(sent) for partition, sent in self.sent.items())


def steady(loader: BlockhouseLoader, rate: int, seconds: int) -> dict[str, float]:
    """Latency in seconds from a message's time in Kafka to its acknowledgement; CPU in cores; memory in MiB."""
    loader.start()
    warm_up = 5
    stream = _Stream(loader, rate)
    stream.run(warm_up)
    acknowledged = stream.acknowledged = Acknowledged()
    before = cpu_seconds(loader.leader)
    started = time.monotonic()
    stream.run(seconds)
    cores = (cpu_seconds(loader.leader) - before) / (time.monotonic() - started)
    used = memory(loader.leader)
    if not wait_until(stream.complete, timeout=60, interval=LOOK):
        raise StackError("messages were not acknowledged within a minute")
    latencies = np.array(acknowledged.latencies)
    return {
        "messages": float(len(latencies)),
        "latency p50, s": float(np.percentile(latencies, 50)),
        "latency p99, s": float(np.percentile(latencies, 99)),
        "latency max, s": float(latencies.max()),
        "CPU, cores": cores,
        "RSS, MiB": used.rss / MIB,
        "PSS, MiB": used.pss / MIB,
    }


class _Stream:
    """Sends at a steady rate and watches the aggregator's status page."""

    def __init__(self, loader: BlockhouseLoader, rate: int) -> None:
        self.acknowledged = Acknowledged()
        self._loader = loader
        self._rate = rate
        self._values = cycle(list(loader.data.messages()))
        self._headers = table_headers(loader.table)
        self._producer = Producer({"bootstrap.servers": loader.testbed.bootstrap, "linger.ms": 5})
        self._looked = 0.0

    def run(self, seconds: float) -> None:
        started, sent, total = time.monotonic(), 0, int(self._rate * seconds)
        while sent < total:
            due = min(total, int((time.monotonic() - started) * self._rate))
            for number in range(sent, due):
                self._producer.produce(
                    self._loader.topic,
                    next(self._values),
                    partition=number % PARTITIONS,
                    headers=self._headers,
                    on_delivery=self.acknowledged.delivered,
                )
            sent = due
            self._producer.poll(0.005)
            if time.monotonic() - self._looked > LOOK:
                self.look()
        self._producer.flush(10)

    def complete(self) -> bool:
        """Look once more; True when everything that was sent is acknowledged."""
        self.look()
        return self.acknowledged.complete

    def look(self) -> None:
        self._looked = time.monotonic()
        self.acknowledged.look(self._loader.aggregator.streams())
