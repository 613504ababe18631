"""A mirror between the clusters a and b as a process of its own, killed with everything of it like any server."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import yaml

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.mirror import MirrorConfig
from blockhouse.contract.mirror import REBALANCE, STATUS, MirrorPartition, MirrorStatus
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.audit.compare import PartitionAudit
from blockhouse_mirror.audit.judge import audit
from blockhouse_mirror.kafka.bounds import LogBounds
from blockhouse_mirror.runtime.driver import EXIT_FENCED, EXIT_OK
from blockhouse_mirror.runtime.reports import TASK_GONE
from e2e.stack.kafka import KafkaClusterServers
from e2e.stack.ports import Ports
from e2e.stack.process import is_alive, signal_session, spawn
from e2e.stack.server import StackError

END_TIMEOUT = 60.0
"""Seconds a mirror may take to end in order."""
Ends = Mapping[Key, int]


def ends(kafka: KafkaClusterServers, topic: str, partitions: int) -> dict[Key, int]:
    """Where the partitions of a topic end, and with them what a mirror has to reach. StackError without an answer."""
    cluster = KafkaCluster(name=kafka.name, bootstrap_servers=kafka.bootstrap)
    found = LogBounds(cluster).of([Key(topic, number) for number in range(partitions)])
    if len(found) < partitions:
        raise StackError(f"only {len(found)} of {partitions} partitions of topic {topic} answer where they end")
    return {key: bound.end for key, bound in found.items()}


class MirrorProcess:
    """`blockhouse mirror run` from cluster a to cluster b; `start` again after it ended. `changes` replace sections of
    its configuration, and it ends with the process that started it."""

    def __init__(
        self, kafka: Mapping[str, KafkaClusterServers], folder: Path, name: str, include: str, **changes: Any
    ) -> None:
        self._ports = Ports()
        self.port = self._ports["admin"]
        self._folder = folder
        self.document: dict[str, Any] = {
            "name": name.replace("_", "-")[-32:].strip("-"),
            "source": {"name": "a", "bootstrapServers": kafka["a"].bootstrap},
            "target": {"name": "b", "bootstrapServers": kafka["b"].bootstrap},
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
        self.blockhouse = Path(sys.executable).with_name("blockhouse")
        """What runs it: that of another checkout runs another version."""
        self._process: psutil.Process | None = None

    @property
    def config(self) -> MirrorConfig:
        return MirrorConfig.model_validate(self.document)

    def start(self, log: str = "") -> None:
        """Returns at once."""
        self.log = self._folder / (log or f"{self.document['name']}.log")
        file = self._folder / f"{self.document['name']}.yaml"
        file.write_text(yaml.safe_dump(self.document))
        command = [str(self.blockhouse), "mirror", "run", "--config", str(file)]
        self._process = spawn(command, folder=self._folder, log=self.log, dies_with_parent=True, env={})

    def status(self) -> MirrorStatus | None:
        """None while it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{STATUS.path}", timeout=5) as answer:
                return MirrorStatus.parse(answer.read())
        except (OSError, HTTPException):
            return None

    def rebalance(self) -> None:
        """Ask it to make its tasks even at its next look. Raises OSError while it does not answer."""
        with urlopen(Request(f"http://127.0.0.1:{self.port}{REBALANCE.path}", method=REBALANCE.method), timeout=5):
            pass

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

    def waits_for_a_lost_task(self, topic: str) -> bool:
        """Some partition of the topic was a task's that is gone, and no other task's yet."""
        found = self.status()
        every = found.partitions if found is not None else ()
        return any(each.topic == topic and each.waits == TASK_GONE for each in every)

    @property
    def ended(self) -> bool:
        return self._process is None or not is_alive(self._process)

    def caught_up(self, ends: Ends) -> bool:
        """The position of each of these partitions is at least there."""
        found = self.status()
        positions = {Key(p.topic, p.partition): p.position for p in found.partitions} if found is not None else {}
        return all(positions.get(key, -1) >= end for key, end in ends.items())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return int(self._process.pid)

    def workers(self) -> dict[str, psutil.Process]:
        """The living Python workers by the task they run, as the driver logs them."""
        pids = {task: int(pid) for pid, task in re.findall(r"task\.starts.*pid=(\d+) task=(\S+)", self.log.read_text())}
        found = {}
        for task, pid in pids.items():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(pid) == self.pid:  # a pid of a former life may be a stranger's by now
                    found[task] = psutil.Process(pid)
        return found

    def wait(self, seconds: float = END_TIMEOUT) -> int:
        """Its exit code."""
        assert self._process is not None
        return int(self._process.wait(seconds))

    def terminate(self) -> int:
        """End it in order; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def restart(self) -> None:
        """In order, as its pod is. One that lost its target may have ended by itself, fenced, or be about to."""
        if self.ended:
            assert self.wait() == EXIT_FENCED
        else:
            assert self.terminate() in {EXIT_OK, EXIT_FENCED}
        self.start()

    def kill_driver(self) -> None:
        """The driver alone: its workers find out by themselves."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def kill(self) -> None:
        """Everything of it."""
        if self._process is not None:
            signal_session(self._process, signal.SIGKILL)
            with suppress(psutil.TimeoutExpired):
                self._process.wait(10)

    def audit(self, topic: str = "") -> list[PartitionAudit]:
        """What the judge finds, of one topic of the source or of all."""
        config = self.config
        chosen = {"topics": config.topics.model_copy(update={"include": (re.escape(topic),)})} if topic else {}
        return list(audit(config.model_copy(update=chosen)))
