"""A mirror between the two Kafka clusters of the stack as a process of its own, and records to mirror."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import psutil
import yaml
from confluent_kafka import Producer

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.mirror import MirrorConfig
from blockhouse.contract.mirror import MirrorPartition, MirrorStatus
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.audit.compare import PartitionAudit
from blockhouse_mirror.audit.judge import audit
from blockhouse_mirror.kafka.bounds import LogBounds
from e2e.stack import Stack
from e2e.stack.ports import Ports

SOON = 60.0
"""Seconds that only bound a success."""


def until(condition: Callable[[], bool], what: str, seconds: float = SOON) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def ends(stack: Stack, topic: str, partitions: int) -> dict[tuple[str, int], int]:
    """Where the partitions of a topic of cluster a end, and with them what a mirror has to reach."""
    source = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    found = LogBounds(source).of([Key(topic, number) for number in range(partitions)])
    assert len(found) == partitions
    return {(key.topic, key.partition): bound.end for key, bound in found.items()}


class Feed:
    """Writes records of all kinds to a topic, at a rate if one is given, until it is stopped. A context manager."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int], *, seed: int, rate: float = 2000) -> None:
        self.topic = topic
        self._partitions = partitions
        self._random = random.Random(seed)
        self._rate = rate
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def write(self, count: int) -> None:
        """So many records, acknowledged when it returns."""
        for _ in range(count):
            self._one()
        assert self._producer.flush(SOON) == 0

    def _one(self) -> None:
        chance = self._random
        value = None if chance.random() < 0.02 else chance.randbytes(chance.choice([0, 10, 100, 2000]))
        key = None if chance.random() < 0.3 else chance.randbytes(4)
        headers = [("kind", b"x"), ("kind", b"y"), ("none", None)] if chance.random() < 0.1 else None
        moment = int(time.time() * 1000) - chance.randrange(1000)
        while True:
            try:
                self._producer.produce(
                    self.topic, value, key, chance.choice(self._partitions), timestamp=moment, headers=headers
                )
                return
            except BufferError:
                self._producer.poll(0.05)

    def _run(self) -> None:
        began, written = time.monotonic(), 0
        while not self._stopped.wait(0.02):
            for _ in range(int((time.monotonic() - began) * self._rate) - written):
                self._one()
                written += 1
            self._producer.poll(0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(SOON) == 0


class MirrorProcess:
    """`blockhouse mirror run` from cluster a to cluster b of a stack; `start` again after it ended."""

    def __init__(self, stack: Stack, folder: Path, name: str, include: str, **changes: Any) -> None:
        self._ports = Ports()
        self.port = self._ports["admin"]
        self._folder, self._stack = folder, stack
        self.document: dict[str, Any] = {
            "name": name.replace("_", "-")[-32:].strip("-"),
            "source": {"name": "a", "bootstrapServers": stack.kafka["a"].bootstrap},
            "target": {"name": "b", "bootstrapServers": stack.kafka["b"].bootstrap},
            "topics": {"include": [include]},
            "targetTopics": {"interval": "1s"},
            "load": {"interval": "1s"},
            "commitInterval": "200ms",
            "spark": {"master": "local[2]"},
            "admin": {"port": self.port},
            "logFormat": "console",
            **changes,
        }
        self.log = folder / "not-started.log"
        self._process: psutil.Popen | None = None

    @property
    def config(self) -> MirrorConfig:
        return MirrorConfig.model_validate(self.document)

    def start(self, log: str = "") -> None:
        """Returns at once."""
        self.log = self._folder / (log or f"{self.document['name']}.log")
        file = self._folder / f"{self.document['name']}.yaml"
        file.write_text(yaml.safe_dump(self.document))
        command = [str(Path(sys.executable).with_name("blockhouse")), "mirror", "run", "--config", str(file)]
        with self.log.open("ab") as output:
            self._process = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)

    def status(self) -> MirrorStatus | None:
        """None while it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/status", timeout=5) as answer:
                return MirrorStatus.parse(answer.read())
        except OSError:
            return None

    def partition(self, topic: str, number: int) -> MirrorPartition | None:
        found = self.status()
        every = found.partitions if found is not None else ()
        return next((each for each in every if (each.topic, each.partition) == (topic, number)), None)

    def mirroring(self) -> bool:
        """All partitions that are not stopped have a task."""
        found = self.status()
        return found is not None and bool(found.partitions) and all(p.holder or p.stopped for p in found.partitions)

    def all_held_again(self) -> bool:
        """All partitions are mirrored, and none waits for a task that is gone."""
        found = self.status()
        return found is not None and bool(found.partitions) and all(p.holder and not p.waits for p in found.partitions)

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def caught_up(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """The position of each of these partitions is at least there."""
        found = self.status()
        positions = {(p.topic, p.partition): p.position for p in found.partitions} if found is not None else {}
        return all(positions.get(key, -1) >= end for key, end in ends.items())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return int(self._process.pid)

    def workers(self) -> list[psutil.Process]:
        """The living Python workers that run tasks, by what the driver logs of them."""
        pids = {task: int(pid) for pid, task in re.findall(r"task\.starts.*pid=(\d+) task=(\S+)", self.log.read_text())}
        found = []
        for pid in pids.values():
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found

    def wait(self, seconds: float = SOON) -> int:
        """Its exit code."""
        assert self._process is not None
        return int(self._process.wait(seconds))

    def terminate(self) -> int:
        """End it in order; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def kill_driver(self) -> None:
        """The driver alone: its workers find out by themselves."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def kill(self) -> None:
        """Everything of it."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            with suppress(psutil.TimeoutExpired):
                self._process.wait(10)

    def audit(self) -> list[PartitionAudit]:
        """What the judge finds."""
        return list(audit(self.config))


MirrorFactory = Callable[..., MirrorProcess]


def assert_exact(mirror: MirrorProcess, records: int) -> None:
    """After its end, which writes the last positions."""
    assert mirror.terminate() == 0
    found = mirror.audit()
    assert [each for each in found if not each.exact] == []
    assert sum(each.compared for each in found) == records
