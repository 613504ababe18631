"""A throttled move on three real brokers, with a producer beside it: rate, the producer's p99, and kills.

    bench/throttle.py --rounds 5                    300 MB: unthrottled and at 30 MB/s; what a producer notices
    bench/throttle.py --rounds 0 --seeds 20         20 runs of the command, killed at a moment of their seed
    bench/throttle.py --rounds 0 --operator-seeds 20  20 reassignments, the operator killed at changes of their seed
    bench/throttle.py --rounds 0 --operator-seeds 3 --each-change  one of each ending, killed after every single change

Figures only: it fails when something is left behind, never for being slow.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.throttling import LISTS, RATES
from blockhouse.placement.model import TopicPartition
from e2e.moves.story import Story
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until

MB = 1_000_000
BROKERS = (1, 2, 3)
TOPIC, KEY = "moved", TopicPartition("moved", 0)
ENDS = ([1, 2], [3, 2])
WARM_UP, CALM = 10.0, 10.0
"""Seconds: the first records of a producer wait for its connections; and a producer is watched without a move."""


@dataclass(frozen=True)
class Run:
    copied: float
    """MB/s of the middle of the copy."""
    latencies: tuple[float, ...]
    """Milliseconds from produce to acknowledgement, acks=all, on another topic of the same brokers, while it copied."""
    seconds: float

    @property
    def p99(self) -> float:
        return percentile(self.latencies, 99)

    @property
    def p50(self) -> float:
        return percentile(self.latencies, 50)


def percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if values else float("nan")


class SteadyProducer:
    """2 MB/s to a topic on all brokers; remembers how long each record took."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._stopped = threading.Event()
        self._latencies: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> list[float]:
        """Latencies since the last call, in milliseconds."""
        found, self._latencies = self._latencies, []
        return found

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.flush(30)

    def _run(self) -> None:
        padding = random.Random(1).randbytes(10_000)
        due = time.monotonic()
        while not self._stopped.is_set():
            began = time.monotonic()
            self._producer.produce("beside", padding, on_delivery=partial(self._note, began))
            due += 0.005
            while True:
                self._producer.poll(max(min(due - time.monotonic(), 0.005), 0))
                if time.monotonic() >= due:
                    break

    def _note(self, began: float, _error: KafkaError | None, _message: Message) -> None:
        self._latencies.append((time.monotonic() - began) * 1000)


@dataclass(frozen=True)
class Bed:
    """A cluster, and a folder for plans and records."""

    kafka: KafkaClusterServers
    fleet: KafkaFleet
    folder: Path


@contextmanager
def testbed(folder: Path, megabytes: int) -> Iterator[Bed]:
    """Three brokers, the topic to move and the producer's."""
    properties = {"replica.fetch.max.bytes": "262144", "replica.fetch.response.max.bytes": "1048576"}
    with kafka_cluster("bench", folder, dict.fromkeys(BROKERS, properties)) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics = [
            NewTopic(TOPIC, num_partitions=1, replica_assignment=[ENDS[0]]),
            NewTopic("beside", num_partitions=3, replica_assignment=[[1, 2], [2, 3], [3, 1]]),
        ]
        for made in admin.create_topics(topics).values():
            made.result(timeout=30)
        fill(kafka.bootstrap, megabytes)
        with KafkaFleet(KafkaCluster(name="bench", bootstrap_servers=kafka.bootstrap)) as fleet:
            assert wait_until(lambda: fleet.partitions()[KEY].in_sync == {1, 2}, timeout=60)
            yield Bed(kafka, fleet, folder)


def fill(bootstrap: str, megabytes: int) -> None:
    producer, chance = Producer({"bootstrap.servers": bootstrap}), random.Random(0)
    for number in range(megabytes * 10):
        producer.produce(TOPIC, chance.randbytes(100_000))
        producer.poll(0)
        if number % 200 == 0:
            producer.flush(60)
    producer.flush(60)


def command(bed: Bed, target: Sequence[int], *throttle: str) -> list[str]:
    plan = bed.folder / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": list(target)}]})
    )
    blockhouse = Path(sys.executable).with_name("blockhouse")
    live = ("--bootstrap-server", bed.kafka.bootstrap, "--state", str(bed.folder / "record.json"), "--interval", "2")
    return [str(blockhouse), "topics", "apply", str(plan), "--execute", *live, *throttle]


def measure(bed: Bed, producer: SteadyProducer, megabytes: int, target: Sequence[int], *throttle: str) -> Run:
    fleet = bed.fleet
    arriving = next(id for id in target if id not in fleet.partitions()[KEY].replicas)
    began, points = time.monotonic(), []
    running = subprocess.Popen(command(bed, target, *throttle), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_until(lambda: KEY in fleet.moves() or running.poll() is not None, timeout=60, interval=0.05)
    producer.take()
    while KEY in fleet.moves():
        found = fleet.storage().replicas.get((KEY, arriving))
        points.append((time.monotonic(), found.size if found else 0.0))
        time.sleep(0.2)
    latencies = producer.take()
    assert running.wait(120) == 0
    left_nothing(fleet)
    inside = [(at, size) for at, size in points if 0.1 * megabytes * MB < size < 0.95 * megabytes * MB]
    rate = (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0]) / MB if len(inside) > 1 else float("nan")
    return Run(rate, tuple(latencies), time.monotonic() - began)


def left_nothing(fleet: KafkaFleet) -> None:
    """Raises AssertionError naming a throttle that is left."""
    rates = {id: found for id, found in fleet.broker_settings(BROKERS, RATES).items() if found}
    lists = {topic: found for topic, found in fleet.topic_settings([TOPIC], LISTS).items() if found}
    assert not rates, f"rates are left: {rates}"
    assert not lists, f"lists are left: {lists}"


def killed(bed: Bed, target: Sequence[int], seed: int) -> str:
    """Kill the command at moments of the seed until it ends by itself; returns what was seen."""
    fleet, chance, kills, unthrottled = bed.fleet, random.Random(seed), 0, 0
    while True:
        running = subprocess.Popen(command(bed, target, "--throttle", "30MB/s"), stdout=subprocess.DEVNULL)
        try:
            code = running.wait(chance.uniform(1.5, 9.0) if kills < 4 else 300)
            assert code == 0, f"the command ended with {code}"
            break
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            kills += 1
            moves = fleet.moves()
            arriving = (moves[KEY].adding - fleet.partitions()[KEY].in_sync) if KEY in moves else frozenset()
            rates = fleet.broker_settings(arriving, RATES) if arriving else {}
            unthrottled += sum(not found for found in rates.values())
    left_nothing(fleet)
    assert fleet.partitions()[KEY].replicas == tuple(target)
    return f"{kills} kills, {unthrottled} found unthrottled, nothing left"


def compare(bed: Bed, megabytes: int, rounds: int) -> None:
    """What a producer notices of no move, an unthrottled and a throttled one, in turn; prints rounds and medians."""
    kinds: dict[str, list[Run]] = {"no move": [], "--throttle none": [], "--throttle 30MB/s": []}
    with closing(SteadyProducer(bed.kafka.bootstrap)) as producer:
        time.sleep(WARM_UP)
        for number in range(rounds):
            producer.take()
            time.sleep(CALM)
            kinds["no move"].append(Run(0.0, tuple(producer.take()), CALM))
            for target, rate in ((ENDS[1], "none"), (ENDS[0], "30MB/s")):
                run = measure(bed, producer, megabytes, target, "--throttle", rate)
                kinds[f"--throttle {rate}"].append(run)
            for kind, runs in kinds.items():
                print(f"round {number}, {kind}: {shown([runs[-1]])}", flush=True)
    for kind, runs in kinds.items():
        print(f"median of {rounds}, {kind}: {shown(runs)}")


def shown(runs: Sequence[Run]) -> str:
    """Medians over the runs."""
    copied, p50, p99 = (np.median([getattr(run, name) for run in runs]) for name in ("copied", "p50", "p99"))
    return f"copied {copied:.1f} MB/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5, help="of the comparison")
    parser.add_argument("--seeds", type=int, default=0, help="runs in which the command is killed")
    parser.add_argument("--operator-seeds", type=int, default=0, help="reassignments in which the operator is killed")
    parser.add_argument("--first-seed", type=int, default=0, help="with seeds: resume a run, without its first part")
    parser.add_argument("--each-change", action="store_true", help="an operator makes one change and is killed")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    stories = range(options.first_seed, options.first_seed + options.operator_seeds)
    with tempfile.TemporaryDirectory() as name, testbed(Path(name), options.megabytes) as bed:
        if options.rounds:
            compare(bed, options.megabytes, options.rounds)
        for seed, target in zip(seeds, cycle([ENDS[1], ENDS[0]]), strict=False):
            print(f"seed {seed}: {killed(bed, target, seed)}", flush=True)
        for seed in stories:
            folder, lives = Path(name) / f"seed-{seed}", 80 if options.each_change else 5
            story = Story(
                bed.kafka.bootstrap, bed.fleet, folder, KEY, seed, rate=30, lives=lives, each_change=options.each_change
            )
            began = time.monotonic()
            story.run()
            deaths = ", ".join(f"{death.phase}/{death.change or 'at a moment'}" for death in story.deaths)
            print(f"operator, seed {seed}, {story.ending}: {time.monotonic() - began:.0f} s, {deaths}", flush=True)


if __name__ == "__main__":
    main()
