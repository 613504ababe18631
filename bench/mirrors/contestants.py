"""Who mirrors: a plain loop, bare and whole; `blockhouse mirror run` in both deliveries; MirrorMaker 2."""

from __future__ import annotations

import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil

from bench.mirrors.field import PARTITIONS, Field
from bench.processes import cpu_seconds
from e2e.kit.mirror import MirrorProcess
from e2e.stack.kafka import KAFKA_VERSION, jars
from e2e.stack.process import is_alive, signal_session, spawn, wait_dead, wait_until
from e2e.stack.server import StackError, render

READY_TIMEOUT = 120.0
CALM: dict[str, Any] = {"interval": "30s"}
"""How often load is measured: as a mirror does by default."""
POM = Path(__file__).with_name("mirror-maker.xml")


class Contestant(ABC):
    """Mirrors one topic between the clusters of a field while its context lasts; nothing of it runs afterwards."""

    def __init__(self, field: Field, topic: str) -> None:
        self.field, self.topic = field, topic

    @abstractmethod
    def start(self) -> None:
        """Returns at once."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """The leader of the session in which everything of it runs."""

    @property
    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    def close(self) -> None: ...

    def cpu(self) -> float:
        """CPU seconds of all its processes so far."""
        return cpu_seconds(self.pid)

    def wait_for(self, records: int, timeout: float = READY_TIMEOUT, interval: float = 0.05) -> None:
        """Until the target has so many. StackError when it does not get there."""

        def arrived() -> bool:
            if not self.alive:
                raise StackError(f"{type(self).__name__} has ended: see the logs in {self.field.folder}")
            return self.field.arrived(self.topic) >= records

        if not wait_until(arrived, timeout=timeout, interval=interval):
            found = self.field.arrived(self.topic)
            raise StackError(f"{type(self).__name__} mirrored {found} of {records} records within {timeout:g} s")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Program(Contestant):
    """A command in a session of its own."""

    _process: psutil.Process

    @abstractmethod
    def command(self) -> list[str]: ...

    def start(self) -> None:
        log = self.field.folder / f"{self.topic}.log"
        self._process = spawn(self.command(), folder=self.field.folder, log=log, dies_with_parent=True, env=self.env())

    def env(self) -> dict[str, str]:
        return {}

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def alive(self) -> bool:
        return is_alive(self._process)

    def close(self) -> None:
        signal_session(self._process, signal.SIGKILL)
        wait_dead(self._process, 10)


class Loop(Program):
    """`kind` as of `bench.mirrors.loop`."""

    def __init__(self, field: Field, topic: str, kind: str) -> None:
        super().__init__(field, topic)
        self._kind = kind

    def command(self) -> list[str]:
        return [
            sys.executable, "-m", "bench.mirrors.loop", self.field.source, self.field.target, self.topic, self._kind
        ]  # fmt: skip

    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": str(Path(__file__).parents[2])}


class Ours(Contestant):
    """A mirror with as many tasks as asked, everything else as by default."""

    def __init__(self, field: Field, topic: str, delivery: str, tasks: int = 1, **changes: Any) -> None:
        super().__init__(field, topic)
        load = {**CALM, "minTasks": tasks, "maxTasks": tasks}
        self.process = MirrorProcess(
            field.kafka, field.folder, topic, topic,
            **{"delivery": delivery, "load": load, "spark": {"master": f"local[{tasks}]"}, "commitInterval": "1s",
               "targetTopics": {"interval": "30s"}, **changes},
        )  # fmt: skip

    def start(self) -> None:
        self.process.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return not self.process.ended

    def close(self) -> None:
        self.process.kill()


class MirrorMaker(Program):
    """MirrorMaker 2 of the brokers' version in dedicated mode: one task, names kept, no heartbeats or checkpoints."""

    def command(self) -> list[str]:
        folder = self.field.folder
        properties, log4j = folder / f"{self.topic}.properties", folder / "mirror-maker-log4j2.yaml"
        properties.write_text("".join(f"{key} = {value}\n" for key, value in self._properties().items()))
        log4j.write_text(render("log4j2.yaml"))
        java = ["java", f"-Dlog4j2.configurationFile={log4j}", "-Xmx1g", "-cp", f"{mirror_maker_jars()}/*"]
        return [*java, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties)]

    def _properties(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "clusters": "a, b",
            "a.bootstrap.servers": self.field.source,
            "b.bootstrap.servers": self.field.target,
            "a->b.enabled": "true",
            "a->b.topics": self.topic,
            "b->a.enabled": "false",
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "tasks.max": 1,
            "replication.factor": 1,
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            "sync.topic.configs.enabled": "false",
            "sync.topic.acls.enabled": "false",
            "sync.group.offsets.enabled": "false",
            "offset.flush.interval.ms": 1000,
            "a.consumer.isolation.level": "read_committed",
            "b.producer.compression.type": "lz4",
            "b.producer.linger.ms": 5,
            "b.producer.batch.size": 1 << 18,
            "b.producer.buffer.memory": 128 << 20,
        }
        stores = ("offset", "status", "config")
        found |= {f"{store}.storage.replication.factor": 1 for store in stores}
        # Topics of its own for each run: one that continued where another ended would mirror nothing.
        for cluster in "ab":
            found |= {f"{cluster}.{store}.storage.topic": f"mm2-{store}-{self.topic}" for store in stores}
            found[f"{cluster}.group.id"] = f"mm2-{self.topic}"
        return found | {"offset-syncs.topic.replication.factor": 1}


def mirror_maker_jars() -> Path:
    """The folder of its jars beside the brokers'; fetched by Maven the first time. StackError when that fails."""
    folder = jars().parent / f"mirror-maker-{KAFKA_VERSION}"
    if not (folder / ".complete").exists():
        print(f"fetching the jars of MirrorMaker {KAFKA_VERSION} into {folder}", file=sys.stderr, flush=True)
        command = ["mvn", "--batch-mode", "--quiet", "-f", str(POM), f"-Dkafka.version={KAFKA_VERSION}"]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(f"the jars of MirrorMaker could not be fetched: {done.stdout[-500:]}{done.stderr[-500:]}")
        (folder / ".complete").touch()
    return folder


Start = Callable[[Field, str], Contestant]
CONTESTANTS: dict[str, tuple[str, Start]] = {
    "loop": ("plain loop", partial(Loop, kind="whole")),
    "bare": ("plain loop, values alone, acks=1", partial(Loop, kind="bare")),
    "effectively-once": ("Blockhouse, EffectivelyOnce", partial(Ours, delivery="EffectivelyOnce")),
    "at-least-once": ("Blockhouse, AtLeastOnce", partial(Ours, delivery="AtLeastOnce")),
    "mirror-maker": ("MirrorMaker 2", MirrorMaker),
}
"""By name: what it is called in a table, and how it is built for a field and a topic."""
BASELINE = "loop"

assert PARTITIONS % 4 == 0, "tasks get equal parts"
