"""One aggregator as a process of its own: `blockhouse aggregator run`, killed and frozen like any other server."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.stack import process
from e2e.stack.server import Server, StackError


class AggregatorProcess(Server):
    """`config` is the YAML of docs/configuration.md as a mapping."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any], *, dies_with_parent: bool = True) -> None:
        super().__init__(name, folder, dies_with_parent=dies_with_parent)
        self.config = config
        self.replica: str = config["replica"]
        self._port: int = config["admin"]["port"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def prepare(self) -> list[str]:
        path = self.folder / "aggregator.yaml"
        path.write_text(yaml.safe_dump(dict(self.config), sort_keys=False))
        blockhouse = Path(sys.executable).with_name("blockhouse")
        return [str(blockhouse), "aggregator", "run", "--config", str(path)]

    def get(self, path: str, timeout: float = 2.0) -> str:
        """The answer of the admin API. Raises OSError while there is none."""
        with urllib.request.urlopen(self.url + path, timeout=timeout) as answer:
            body: bytes = answer.read()
            return body.decode()

    def answers(self) -> bool:
        try:
            return self.get("/readyz").startswith("ready")
        except OSError:
            return False

    def status(self) -> Mapping[str, Any]:
        """The status page; an empty one while the process does not answer."""
        try:
            found: Mapping[str, Any] = json.loads(self.get("/status"))
        except (OSError, ValueError):
            return {}
        return found

    def streams(self) -> list[Mapping[str, Any]]:
        return list(self.status().get("streams", []))

    def counter(self, name: str) -> int:
        """The sum over all streams of one of the status page's counters."""
        return sum(stream["counters"][name] for stream in self.streams())

    def members(self, kind: str) -> list[int]:
        """Pids of the Spark JVM (`java`) or of its Python workers (`worker`)."""
        assert self.pid is not None, f"{self.name} does not run"
        found = []
        for pid in process.session_members(self.pid):
            words = _command_line(pid)
            is_java = any(word.endswith("java") for word in words[:1])
            if (kind == "java" and is_java) or (kind == "worker" and "pyspark.daemon" in words):
                found.append(pid)
        return found

    def kill_member(self, kind: str) -> None:
        """SIGKILL the Spark JVM or every Python worker, but not the driver."""
        pids = self.members(kind)
        if not pids:
            raise StackError(f"{self.name} has no process of kind {kind}")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []
