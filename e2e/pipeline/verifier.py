"""A verifier as a process of its own beside a pipeline: `blockhouse verifier run`, killed like any server."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from blockhouse.contract.verifier import ANOMALIES, VERDICT, AnomalyReport, Verdict
from blockhouse_aggregator.verifier.anomaly import iso
from e2e.pipeline.pipeline import Pipeline
from e2e.stack.process import wait_until
from e2e.stack.server import Server, StackError


class VerifierProcess(Server):
    """`config` is the YAML of docs/verifier.md as a mapping; its `admin.port` must be a port of the caller's."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any], *, dies_with_parent: bool = True) -> None:
        super().__init__(name, folder, dies_with_parent=dies_with_parent)
        self.config = config
        self._port: int = config["admin"]["port"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def prepare(self) -> list[str]:
        path = self.folder / "verifier.yaml"
        path.write_text(yaml.safe_dump(dict(self.config), sort_keys=False))
        blockhouse = Path(sys.executable).with_name("blockhouse")
        return [str(blockhouse), "verifier", "run", "--config", str(path)]

    def get(self, path: str, timeout: float = 2.0) -> str:
        """The answer of its HTTP API. Raises OSError while there is none."""
        with urllib.request.urlopen(self.url + path, timeout=timeout) as answer:
            body: bytes = answer.read()
            return body.decode()

    def answers(self) -> bool:
        try:
            return self.get("/readyz").startswith("ready")
        except OSError:
            return False

    def verdict(self) -> Verdict | None:
        """Its verdict; None while it does not answer. Raises NotUnderstood for another contract's."""
        try:
            text = self.get(VERDICT.path)
        except OSError:
            return None
        return Verdict.parse(text)

    def anomalies(self, **values: Any) -> list[AnomalyReport]:
        """The anomalies that are kept, those in which every one of `values` is as given."""
        found = [AnomalyReport.parse(each) for each in json.loads(self.get(ANOMALIES.path))]
        return [anomaly for anomaly in found if all(getattr(anomaly, key) == value for key, value in values.items())]

    def terminate(self) -> None:
        """SIGTERM to the process itself only, as Kubernetes does."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)

    def settled(self, timeout: float = 60.0) -> Verdict:
        """Its verdict about everything that was committed before this call. StackError when it does not get so far."""
        now = iso(time.time_ns() // 1_000_000)
        latest: list[Verdict | None] = [None]

        def seen() -> bool:
            found = latest[0] = self.verdict()
            if found is None or found.verdict == "unknown":
                return False
            clusters = found.coverage.values()
            return bool(clusters) and all(c.behind == 0 and (c.looked or "") >= now for c in clusters)

        if not wait_until(seen, timeout=timeout, interval=0.2) or latest[0] is None:
            raise StackError(f"{self.name} has not seen everything within {timeout:g} s: {latest[0]}")
        return latest[0]


def verifier_of(pipeline: Pipeline, *shards: Pipeline, **overrides: Any) -> VerifierProcess:
    """A verifier of everything the pipeline commits, and its other `shards`, not started. `overrides` replace sections
    of its configuration."""
    spec, every = pipeline.spec, (pipeline, *shards)
    groups = sorted({a.config["kafka"]["group"] for each in every for a in each.aggregators.values()})
    config: dict[str, Any] = {
        "pipeline": spec.name,
        "groups": groups,
        "topics": [each.spec.topic for each in every],
        "clusters": [{"name": k.name, "bootstrapServers": k.bootstrap} for k in pipeline.kafka.values()],
        "admin": {"port": pipeline.port("verifier")},
        "checkpoint": {"interval": "2s"},
        "logInterval": "2s",
    }
    return VerifierProcess("verifier", pipeline.folder / "verifier", config | overrides)
