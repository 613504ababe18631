"""What sampling load costs, and how near its rates are to the truth, beside Cruise Control's even split.

    python bench/load.py [--partitions 10000] [--samples 5] [--window 20] [--folder DIR]

Starts one broker with that many partitions. First CPU seconds of a sample while every partition is written to, then a
load whose true rates are known: 40 partitions of four topics, Zipf-skewed, records of different sizes. Cruise Control's
figure for a partition is its topic's rate on the broker divided by the leaders there; it is computed from the truth, so
it is as good as it can be. Figures only; nothing passes or fails.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Self

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.load.looks import ClusterLooks
from blockhouse.fleet.load.sampled import SampledSource, uncollected
from blockhouse.load.history import LoadHistory
from blockhouse.load.model import PartitionLoad, Sample
from blockhouse.load.sampling import PartitionLook, Sampler, Snapshot
from blockhouse.placement.model import TopicPartition
from e2e.stack import StackSpec
from e2e.stack.kafka import KafkaBroker, KafkaClusterServers, broker_ports
from e2e.stack.ports import Ports

A_TOPIC = 100
SKEWED, SKEWED_PARTITIONS = 4, 10
SIZES = (500, 1000, 4000, 20_000)
TOTAL = 2e6
"""Bytes a second of the load whose rates are known."""
OVERHEAD = 70
"""Bytes that a batch and its record take beside the value: every record is sent in a batch of its own."""


@contextmanager
def broker(folder: Path) -> Iterator[KafkaClusterServers]:
    ports = Ports()
    spec = StackSpec(kafka_heap="1g", kafka_properties={"log.index.size.max.bytes": "4096"})
    server = KafkaBroker(
        "kafka-bench-1", folder / "kafka-bench-1", spec=spec, node=1,
        peers=[broker_ports(ports, "kafka-bench-1")], dies_with_parent=True,
    )  # fmt: skip
    try:
        server.start()
        yield KafkaClusterServers("bench", [server])
    finally:
        server.kill()
        ports.release()


def create(bootstrap: str, topics: dict[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, num_partitions=count, replication_factor=1) for topic, count in topics.items()]
    for begin in range(0, len(new), 10):
        for future in admin.create_topics(new[begin : begin + 10], operation_timeout=120).values():
            future.result(timeout=180)


def write_everywhere(bootstrap: str, topics: dict[str, int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 0})
    for topic, count in topics.items():
        for partition in range(count):
            producer.produce(topic, b"x" * 100, partition=partition)
        producer.poll(0)
    producer.flush()


def cost(kafka: KafkaCluster, topics: dict[str, int], samples: int) -> None:
    """CPU seconds of this process a sample; the writing is done before and is not counted."""
    with SampledSource(kafka) as source:
        source.sample()
        seconds = []
        for _ in range(samples):
            write_everywhere(kafka.bootstrap_servers, topics)
            begin = time.process_time()
            sample = source.sample()
            seconds.append(time.process_time() - begin)
    assert sample is not None
    partitions = len(sample.partitions)
    moving = sum(load.bytes > 0 for load in sample.partitions.values())
    print(f"sampling {partitions:,} partitions, {moving:,} written to: median {statistics.median(seconds):.3f}, "
          f"highest {max(seconds):.3f} CPU s; {statistics.median(seconds) / 60:.2%} of a core at 60 s")  # fmt: skip


def parts(kafka: KafkaCluster, partitions: int) -> None:
    """The parts of a sample, and 100,000 partitions of three replicas from these parts."""
    looks, sampler = ClusterLooks(kafka), Sampler()
    with uncollected():
        begin = time.process_time()
        look = looks.look(sampler.ask_start)
        asked_all = time.process_time() - begin
    sampler.add(look)
    with uncollected():
        begin = time.process_time()
        look = looks.look(sampler.ask_start)
        asking = time.process_time() - begin
    begin = time.process_time()
    sampler.add(look)
    reckoning = time.process_time() - begin
    looks.close()
    large, small = synthetic(100_000), synthetic(partitions)
    print(f"  of these: first look {asked_all:.3f}, later looks {asking:.3f}, rates of it {reckoning:.3f} CPU s")
    print(f"  rates alone, three replicas: {partitions:,} partitions {small:.3f}, 100,000 {large:.3f} CPU s")
    answers = 100_000 / partitions * asking
    print(f"  100,000 by extrapolation: answers {answers:.2f} + rates {large:.2f} = {answers + large:.2f} CPU s, "
          f"{(answers + large) / 60:.1%} of a core at 60 s")  # fmt: skip


def synthetic(partitions: int) -> float:
    """CPU seconds of the rates between two samples of so many partitions of three replicas on 30 brokers."""

    def look(clock: float, end: int) -> Snapshot:
        keys = [TopicPartition(f"topic-{n // A_TOPIC}", n % A_TOPIC) for n in range(partitions)]
        sets = {key: tuple((n + k) % 30 for k in range(3)) for n, key in enumerate(keys)}
        sizes: dict[int, dict[TopicPartition, float]] = defaultdict(dict)
        for key, replicas in sets.items():
            for id in replicas:
                sizes[id][key] = end * 1000.0
        views = {key: PartitionLook(end, replicas[0], 0, replicas, replicas) for key, replicas in sets.items()}
        return Snapshot("c", clock, clock, views, dict.fromkeys(keys, 0), sizes, dict.fromkeys(range(30), clock))

    sampler = Sampler()
    sampler.add(look(0, 5000))
    later = look(60, 6000)
    with uncollected():
        begin = time.process_time()
        sampler.add(later)
        return time.process_time() - begin


def memory() -> None:
    """Of the history, at its capacity."""
    history = LoadHistory()
    loads = {TopicPartition(f"t{n // A_TOPIC}", n % A_TOPIC): PartitionLoad(1.0, 1.0) for n in range(100_000)}
    begin = time.process_time()
    for minute in range(6):
        history.add(Sample("c", "bench", 1e9 + 60 * minute, 60, loads))
    seconds = (time.process_time() - begin) / 6
    print(
        f"history of 100,000 partitions: {history.nbytes / 1e6:.0f} MB whatever its age, {seconds:.2f} CPU s a sample"
    )


def truth(kafka: KafkaCluster, window: float) -> None:
    """A load of known rates, sampled once over `window` seconds."""
    topics = {f"skewed-{n}": SKEWED_PARTITIONS for n in range(SKEWED)}
    create(kafka.bootstrap_servers, topics)
    shares = {
        TopicPartition(topic, number): 1 / (rank + 1)
        for topic in topics
        for rank, number in enumerate(range(SKEWED_PARTITIONS))
    }
    whole = sum(shares.values())
    rates = {key: TOTAL * share / whole for key, share in shares.items()}
    sizes = {key: SIZES[int(key.topic[-1])] for key in rates}
    with SampledSource(kafka) as source, Load(kafka.bootstrap_servers, rates, sizes) as written:
        time.sleep(window / 2)  # logs with something in them, as they have in production
        source.sample()
        time.sleep(window)
        sample = source.sample()
        time.sleep(1)  # the count after the window's end
    assert sample is not None
    begin, end = written.count(sample.at - sample.window), written.count(sample.at)
    actual = {key: (end[key] - begin[key]) * (sizes[key] + OVERHEAD) / sample.window for key in rates}
    split: dict[str, float] = defaultdict(float)
    for key, rate in actual.items():
        split[key.topic] += rate / SKEWED_PARTITIONS
    ours = {key: sample.partitions[key].bytes / rate - 1 for key, rate in actual.items()}
    even = {key: split[key.topic] / rate - 1 for key, rate in actual.items()}
    print(f"load of known rates, {sum(actual.values()) / 1e6:.1f} MB/s over {len(rates)} partitions for {window:g} s")
    print(f"{'':14}{'true, kB/s':>12}{'sampled':>12}{'off':>8}{'even split':>12}{'off':>8}")
    for key in sorted(actual, key=lambda key: -actual[key])[:3] + sorted(actual, key=lambda key: actual[key])[:3]:
        print(f"{key.topic}/{key.partition:<5}{actual[key] / 1e3:12.1f}{sample.partitions[key].bytes / 1e3:12.1f}"
              f"{ours[key]:8.1%}{split[key.topic] / 1e3:12.1f}{even[key]:8.0%}")  # fmt: skip
    for name, off in (("sampled", ours), ("even split", even)):
        worst = max(off.values(), key=abs)
        print(f"{name:12} off by {statistics.mean(map(abs, off.values())):.1%} in the mean, {worst:.1%} at worst; "
              f"{sum(abs(value) <= 0.10 for value in off.values())} of {len(off)} within 10 %")  # fmt: skip


class Load:
    """Writes to each partition at its rate until the end of its context, and remembers what was stored when."""

    def __init__(self, bootstrap: str, rates: dict[TopicPartition, float], sizes: dict[TopicPartition, int]) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 1, "log_level": 0}
        )
        self._rates, self._sizes = rates, sizes
        self._counts: list[tuple[float, dict[TopicPartition, int]]] = []
        self._ended = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def count(self, at: float) -> dict[TopicPartition, float]:
        """Records acknowledged until `at` (seconds since the epoch), between two notes by interpolation."""
        times = [moment for moment, _ in self._counts]
        n = min(max(bisect(times, at), 1), len(times) - 1)
        (first, before), (second, after) = self._counts[n - 1 : n + 1]
        part = (at - first) / (second - first)
        return {key: before[key] + part * (after[key] - before[key]) for key in before}

    def _run(self) -> None:
        owed, stored = dict.fromkeys(self._rates, 0.0), dict.fromkeys(self._rates, 0)

        def acknowledged(error: object, message: Message) -> None:
            topic, partition = message.topic(), message.partition()
            assert error is None
            assert topic is not None
            assert partition is not None
            stored[TopicPartition(topic, partition)] += 1

        last = time.time()
        while not self._ended.wait(0.02):
            self._producer.poll(0)
            now = time.time()
            for key, rate in self._rates.items():
                owed[key] += (now - last) * rate / (self._sizes[key] + OVERHEAD)
                while owed[key] >= 1:
                    value = b"x" * self._sizes[key]
                    self._producer.produce(key.topic, value, partition=key.partition, on_delivery=acknowledged)
                    owed[key] -= 1
            last = now
            self._counts.append((now, dict(stored)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--window", type=float, default=20.0)
    parser.add_argument(
        "--folder", type=Path, help="Where the broker's files are for the time; default: a temporary one."
    )
    arguments = parser.parse_args()
    topics = {f"topic-{n:04}": A_TOPIC for n in range(arguments.partitions // A_TOPIC)}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, broker(Path(folder)) as servers:
        kafka = KafkaCluster(name="bench", bootstrap_servers=servers.bootstrap)
        create(servers.bootstrap, topics)
        cost(kafka, topics, arguments.samples)
        parts(kafka, arguments.partitions)
        memory()
        truth(kafka, arguments.window)


if __name__ == "__main__":
    main()
