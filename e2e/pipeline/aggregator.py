"""One aggregator as a process of its own: `blockhouse aggregator run`, killed and frozen like any other server."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from blockhouse.contract.aggregator import STATUS, BlockInFlight, LaggingTable, StatusPage, StreamStatus, TableStatus
from blockhouse.contract.diagnosis import HISTORY, Ownership
from blockhouse.contract.faults import ARM, DISARM, FaultRequest
from blockhouse.contract.interventions import (
    ACCEPT,
    DRAIN,
    DRAIN_STATE,
    RESUME,
    AcceptRequest,
    DrainRequest,
    DrainState,
    ResumeRequest,
)
from blockhouse.contract.rollouts import HOLD, RELEASE, HoldRequest, ReleaseAnswer
from blockhouse.streams import StreamId
from e2e.stack import process
from e2e.stack.server import Server, StackError


class AggregatorProcess(Server):
    """`config` is the YAML of docs/configuration.md as a mapping."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any], *, dies_with_parent: bool = True) -> None:
        super().__init__(name, folder, dies_with_parent=dies_with_parent)
        self.config = config
        self.replica: str = config["replica"]
        self.program = Path(sys.executable).with_name("blockhouse")
        """`blockhouse`, of this checkout unless a bench compares it with another."""
        self._port: int = config["admin"]["port"]

    @property
    def exit_code(self) -> int | None:
        """How the process we started ended (negative: by a signal); None while it runs."""
        return None if self._process is None or self.alive else self._process.wait(5)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def prepare(self) -> list[str]:
        path = self.folder / "aggregator.yaml"
        path.write_text(yaml.safe_dump(dict(self.config), sort_keys=False))
        return [str(self.program), "aggregator", "run", "--config", str(path)]

    def get(self, path: str, timeout: float = 2.0) -> str:
        """The answer of the admin API. Raises OSError while there is none."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=timeout) as answer:
                body: bytes = answer.read()
        except HTTPException as error:  # it died in the middle of its answer
            raise ConnectionError(f"{self.url}{path}: {error!r}") from error
        return body.decode()

    def arm_fault(self, point: str, **fault: Any) -> None:
        """`PUT /faults/POINT` with the values of a `FaultRequest`; needs `faults.enabled` in the configuration."""
        self._ask(ARM.method, ARM.at(point=point), FaultRequest(**fault).written())

    def disarm_fault(self, point: str) -> None:
        """`DELETE /faults/POINT`."""
        self._ask(DISARM.method, DISARM.at(point=point), {})

    def hold(self, table: str, rollout: str) -> None:
        """`PUT /tables/TABLE/hold`. Raises OSError (HTTP Error 409 ...) while another rollout holds the table."""
        self._ask(HOLD.method, HOLD.at(table=table), HoldRequest(rollout=rollout).written())

    def release(self, table: str, rollout: str) -> bool:
        """`DELETE /tables/TABLE/hold`: whether it was held. Raises as `hold` does."""
        answer = self._ask(RELEASE.method, RELEASE.at(table=table), HoldRequest(rollout=rollout).written())
        return ReleaseAnswer.parse(answer).released

    def drain(self, by: str, why: str) -> None:
        """`PUT /drain`."""
        self._ask(DRAIN.method, DRAIN.path, DrainRequest(by=by, why=why).written())

    def resume(self, by: str) -> None:
        """`DELETE /drain`."""
        self._ask(RESUME.method, RESUME.path, ResumeRequest(by=by).written())

    def drain_state(self) -> DrainState:
        """`GET /drain`. Raises OSError while there is no answer."""
        return DrainState.parse(self.get(DRAIN_STATE.path))

    def accept(self, stream: str, request: AcceptRequest) -> None:
        """`PUT /streams/.../acceptance` of a stream that it owns, and that has stopped."""
        cluster, topic, partition = stream.split("/")
        path = ACCEPT.at(cluster=cluster, topic=topic, partition=partition)
        self._ask(ACCEPT.method, path, request.written())

    def history(self) -> list[Ownership]:
        """`GET /history`. Raises OSError while there is no answer."""
        return [Ownership.parse(each) for each in json.loads(self.get(HISTORY.path))]

    def _ask(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(self.url + path, data=json.dumps(body).encode(), method=method)
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def answers(self) -> bool:
        try:
            return self.get("/readyz").startswith("ready")
        except OSError:
            return False

    def status(self) -> StatusPage | None:
        """The status page; None while the process does not answer. Raises NotUnderstood for another contract's page."""
        try:
            text = self.get(STATUS.path)
        except OSError:
            return None
        return StatusPage.parse(text)

    def streams(self) -> tuple[StreamStatus, ...]:
        """The streams it owns; none while it does not answer."""
        page = self.status()
        return page.streams if page is not None else ()

    def tables(self) -> dict[str, TableStatus]:
        """The tables by name; none while it does not answer."""
        page = self.status()
        return {table.name: table for table in page.tables} if page is not None else {}

    def clusters(self) -> dict[str, str]:
        """By Kafka cluster: `ok`, or what is wrong with it; empty while the process does not answer."""
        page = self.status()
        return page.clusters if page is not None else {}

    def lagging(self, name: str) -> dict[str, LaggingTable]:
        """The tables that lag in a stream, by name."""
        stream = self.stream(name)
        return {table.table: table for table in stream.lagging_tables} if stream is not None else {}

    def position(self, name: str) -> int:
        """The next offset that a stream's owner reads; 0 while it is not known, or the stream is not owned here."""
        stream = self.stream(name)
        return (stream.position or 0) if stream is not None else 0

    def counter(self, name: str) -> int:
        """The sum over all streams of one of the status page's counters."""
        return sum(int(getattr(stream.counters, name)) for stream in self.streams())

    def stream(self, name: str) -> StreamStatus | None:
        """One stream's part of the status page, by `cluster/topic/partition`; None when it is not owned here."""
        page = self.status()
        return page.stream(name) if page is not None else None

    def in_flight(self, table: str, *stages: str) -> tuple[BlockInFlight, ...]:
        """The blocks of `database.table` in any stream at one of `stages`: sealed, inserting, replay or blocked."""
        page = self.status()
        return page.in_flight(table, *stages) if page is not None else ()

    def logged(self, event: str, /, **values: Any) -> list[Mapping[str, Any]]:
        """The log's lines about `event` (e.g. `stream.closed`) in which every one of `values` is as given."""
        lines = (line for line in self.log.read_text(errors="replace").splitlines() if f'"event": "{event}"' in line)
        found = [json.loads(line) for line in lines]
        return [line for line in found if all(line.get(key) == value for key, value in values.items())]

    def metric(self, name: str, /, **labels: str) -> float:
        """The sum of a metric's samples that have all of `labels`; 0 when there is none. `stream` stands for the three
        labels that name one."""
        if "stream" in labels:
            stream = StreamId.parse(labels.pop("stream"))
            labels |= {"cluster": stream.cluster, "topic": stream.topic, "partition": str(stream.partition)}
        total = 0.0
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    total += sample.value
        return total

    def terminate(self) -> None:
        """SIGTERM to the process itself only, as Kubernetes does: Spark must live until the driver has finished."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)

    def members(self, kind: str) -> list[int]:
        """Pids of the driver's JVM (`java`), of executors in JVMs of their own (`executor`) or of Python workers
        (`worker`); none when it does not run."""
        leader, found = self.pid, []
        for pid in process.session_members(leader) if leader is not None else ():
            words = _command_line(pid)
            if kind == _kind(words):
                found.append(pid)
        return found

    def kill_member(self, kind: str, count: int | None = None) -> None:
        """SIGKILL the first `count` (by default all) processes of the kind, but not the driver."""
        pids = self.members(kind)[:count]
        if not pids:
            raise StackError(f"{self.name} has no process of kind {kind}")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def _kind(words: list[str]) -> str:
    """What a process of an aggregator's session is, by its command line."""
    if "pyspark.worker" in words:
        return "worker"
    if words[0].endswith("java"):
        return "executor" if any(word.endswith("CoarseGrainedExecutorBackend") for word in words) else "java"
    return ""


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return [""]
