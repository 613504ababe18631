"""Commits per second and core that the verifier checks, and what it remembers of very many streams.

    python bench/verifier.py [--streams 10000] [--tables 20] [--rounds 6] [--kafka] [--profile]

Every commit is a round of a busy stream: all tables in flight again. Timed is what `blockhouse verifier` does with a
record: parse, decode, check, remember; with `--kafka` also a real broker's way to it (an ordinary topic stands for the
offsets topic, which no client may write). CPU time of this process. Figures, never pass or fail.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from random import Random

import psutil

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.metadata import v2
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse_aggregator.verifier.memory import stream_item
from blockhouse_aggregator.verifier.offsets.reader import OffsetsReader
from blockhouse_aggregator.verifier.streams import ClusterStreams, Record

BATCH = 2_000
OFFSETS_PARTITIONS = 50
SPAN = 20_000
"""Offsets of a round."""


def key_of(stream: int) -> bytes:
    group, topic = f"events-{stream // 100:04d}".encode(), f"events-{stream // 100:04d}".encode()
    parts = struct.pack(">h", 1), struct.pack(">h", len(group)), group, struct.pack(">h", len(topic)), topic
    return b"".join(parts) + struct.pack(">i", stream % 100)


def value_of(metadata: Metadata) -> bytes:
    text = v2.encode(metadata).encode() + b"\0"
    head = struct.pack(">hqih", 3, metadata.committed_offset, -1, len(text))
    return head + text + struct.pack(">q", metadata.intent_ms)


def round_of(seq: int, tables: int, random: Random) -> Metadata:
    """The `seq`-th commit of a busy stream, the same for all streams that draw the same numbers."""
    low = 10**12 + seq * SPAN
    entries = []
    for table in range(1, tables + 1):
        begin = low + (random.randrange(SPAN // 4) if table > 1 else 0)
        block = InFlight(begin, begin + SPAN // 2, SPAN // tables, 3, random.getrandbits(32), 1_790_000_000_000 + seq)
        entries.append(TableEntry(table * 2, block))
    position = low + SPAN
    sealed = (seq + 1) * (SPAN // tables) * tables
    window = Window(10**12, sealed, 0, position - 10**12 - sealed)
    intent_ms = 1_790_000_000_000 + seq
    return Metadata("events-01-a1", seq + 1, intent_ms, "ZrK3cW8zTKi0qU1yq1p9Ng", 11, position, window, tuple(entries))


def rounds(streams: int, tables: int, count: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """Per round one commit of every stream. Streams share contents, for only reading them is timed."""
    random = Random(1)
    keys = [key_of(stream) for stream in range(streams)]
    for seq in range(count):
        values = [value_of(round_of(seq, tables, random)) for _ in range(min(streams, 200))]
        yield [(key, bytes(bytearray(values[number % len(values)]))) for number, key in enumerate(keys)]


def in_memory(arguments: argparse.Namespace) -> None:
    watched = ClusterStreams("a", ["events-*"])
    profile = cProfile.Profile() if arguments.profile else None
    process = psutil.Process()
    before = process.memory_info().rss
    spent, commits, offset = 0.0, 0, 0
    for round_ in rounds(arguments.streams, arguments.tables, arguments.rounds):
        records: list[Record] = [
            (n % OFFSETS_PARTITIONS, offset + n, key, value) for n, (key, value) in enumerate(round_)
        ]
        offset += len(records)
        with profile or nullcontext():
            begun = time.process_time()
            for at in range(0, len(records), BATCH):
                found = list(watched.observe(records[at : at + BATCH], 0))
                assert not found, found[0]
            spent += time.process_time() - begun
        commits += len(records)
    size = len(records[0][3] or b"")
    del records, round_
    grown = process.memory_info().rss - before
    print(f"{commits:,} commits of {size} bytes, {arguments.streams:,} streams x {arguments.tables} tables")
    print(f"checked: {commits / spent:,.0f} commits/s of one core, {spent / commits * 1e6:.1f} us each")
    print(f"memory: {grown / 2**20:,.0f} MiB more than without, {grown / arguments.streams / 1024:.1f} KiB a stream")
    begun = time.process_time()
    size = sum(len(stream_item(stream, 0.0)[1] or b"") for stream in watched.streams.values())
    print(f"checkpoint of all streams: {size / 2**20:.1f} MiB, {time.process_time() - begun:.2f} s")
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(15)


def from_kafka(arguments: argparse.Namespace) -> None:
    from confluent_kafka import Producer

    from e2e.stack import Stack, StackSpec

    with tempfile.TemporaryDirectory() as folder:
        spec = StackSpec(kafka_clusters=1, replicas=1, kafka_full_jit=True)
        with Stack(Path(folder) / "stack", spec) as stack:
            kafka = stack.kafka["a"]
            kafka.create_topic("commits", partitions=OFFSETS_PARTITIONS)
            producer = Producer({"bootstrap.servers": kafka.bootstrap, "queue.buffering.max.messages": 10_000_000})
            count = 0
            for round_ in rounds(arguments.streams, arguments.tables, arguments.rounds):
                for number, (key, value) in enumerate(round_):
                    producer.produce("commits", key=key, value=value, partition=number % OFFSETS_PARTITIONS)
                    count += 1
                producer.flush()
            watched = ClusterStreams("a", ["events-*"])
            cluster = KafkaCluster(name="a", bootstrap_servers=kafka.bootstrap)
            with closing(OffsetsReader(cluster, topic="commits")) as reader:
                reader.start(dict.fromkeys(reader.partitions(), -1))
                wall, begun = time.monotonic(), time.process_time()
                while watched.counts["commits"] < count:
                    found = list(watched.observe(reader.read(0.5).records, 0))
                    assert not found, found[0]
                spent, seconds = time.process_time() - begun, time.monotonic() - wall
            print(f"through Kafka: {count / spent:,.0f} commits/s of CPU, {count / seconds:,.0f} by the clock")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    in_memory(arguments)
    if arguments.kafka:
        from_kafka(arguments)


if __name__ == "__main__":
    main()
