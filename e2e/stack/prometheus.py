"""A Prometheus beside a stack: Debian's, which scrapes programs under test and evaluates the chart's alert rules."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from e2e.stack.server import Server, StackError
from e2e.stack.spec import HOST


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a range: its labels, the times at which it was there, in seconds since 1970 unless stated
    otherwise, and its value at each of them."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


class PrometheusServer(Server):
    """Scrapes `jobs`, addresses host:port by name of the job, and evaluates the files in `rules`, both every second.
    An address of `pods` gets the label `pod`, as the chart's PodMonitor gives it."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        jobs: Mapping[str, Sequence[str]],
        rules: Sequence[Path] = (),
        pods: Mapping[str, str] | None = None,
        dies_with_parent: bool = True,
    ) -> None:
        super().__init__("prometheus", folder, dies_with_parent=dies_with_parent)
        self._port, self._jobs, self._rules, self._pods = port, jobs, rules, pods or {}

    def prepare(self) -> list[str]:
        program = shutil.which("prometheus")
        if program is None:
            raise StackError(f"cannot start {self.name}: there is no such program, run `make setup`")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(file) for file in self._rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [self._target(address) for address in addresses]}
                for job, addresses in self._jobs.items()
            ],
        }
        path = self.folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return [
            program,
            f"--config.file={path}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={HOST}:{self._port}",
            "--log.level=warn",
        ]

    def _target(self, address: str) -> dict[str, Any]:
        labels = {"pod": self._pods[address]} if address in self._pods else {}
        return {"targets": [address], "labels": labels}

    def answers(self) -> bool:
        try:
            return self._get("/-/ready") is not None
        except OSError:
            return False

    def query(self, expr: str, *, at: float | None = None) -> list[Mapping[str, str]]:
        """The labels of each series that the expression has now, or at a Unix time: in the future of what was scraped
        last. StackError: Prometheus refuses it, in its words."""
        when = {} if at is None else {"time": f"{at:.3f}"}
        return [series["metric"] for series in self._result("query", {"query": expr, **when})]

    def during(self, expr: str, began: float, until: float, *, step: float) -> list[Series]:
        """Each series that the expression had between two Unix times, sampled every `step` seconds: 11,000 times at
        most. StackError: Prometheus refuses it, in its words."""
        span = {"start": f"{began:.3f}", "end": f"{until:.3f}", "step": f"{step:g}"}
        found = self._result("query_range", {"query": expr, **span})
        return [_series(each["metric"], each["values"]) for each in found]

    def _result(self, resource: str, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        try:
            answer: dict[str, Any] = json.loads(self._get(f"/api/v1/{resource}?" + urlencode(asked)))
        except urllib.error.HTTPError as error:
            raise StackError(f"{self.name} refuses {asked['query']}: {error.read().decode()}") from None
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://{HOST}:{self._port}{path}", timeout=5) as answer:
            body: bytes = answer.read()
            return body


def _series(labels: Mapping[str, str], points: Sequence[tuple[float, str]]) -> Series:
    return Series(labels, tuple(float(at) for at, _ in points), tuple(float(value) for _, value in points))
