"""Produces the rows in the background, steadily and to both Kafka clusters, with a manifest of every message."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.produce import LoadResult, LoadSpec, MessagePool, generate


class Load:
    """A context manager: at its end nothing is produced any more, whether or not all is out."""

    def __init__(
        self,
        spec: LoadSpec,
        clusters: Sequence[KafkaCluster],
        topic: str,
        pools: Mapping[str, MessagePool],
        manifest: Path,
    ) -> None:
        self._first = LoadResult()
        self._rest = LoadResult()
        self._spec = spec
        self._clusters = clusters
        self._topic = topic
        self._pools = pools
        self._manifest = manifest
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._began = 0.0

    @property
    def rows(self) -> int:
        """Rows that the brokers have acknowledged so far."""
        return self._first.rows + self._rest.rows

    @property
    def messages(self) -> int:
        return self._first.acknowledged + self._rest.acknowledged

    def send_first(self, messages: int) -> None:
        """Send the first few messages at once, and return when they are acknowledged."""
        with self._manifest.open("a") as lines:
            spec = replace(self._spec, messages=messages, rate=0)
            self._first = generate(spec, self._clusters, self._topic, self._pools, manifest=lines)

    def start(self) -> None:
        """Produce the rest, steadily."""
        self._began = time.monotonic()
        self._thread.start()

    def clock(self) -> float:
        """Seconds since the production began."""
        return time.monotonic() - self._began

    def wait(self, until: float) -> None:
        """Wait until the clock reads `until`, or for the end of the load. Raises what made the production fail."""
        self._thread.join(max(0.0, until - self.clock()))
        self._raise_failure()

    def stop(self) -> None:
        """Produce no more than is on its way."""
        self._stop.set()

    def finish(self, timeout: float) -> int:
        """Wait until every message is out; returns how many the brokers never acknowledged, and may or may not have.

        Raises BlockhouseError when the production has failed or takes longer than `timeout` seconds.
        """
        self._thread.join(timeout)
        self._raise_failure()
        if self._thread.is_alive():
            raise BlockhouseError(f"production did not end within {timeout:g} s: {self.messages:,} messages are out")
        return self._first.sent + self._rest.sent - self.messages

    def end(self, timeout: float) -> int:
        """Produce no more; returns how many messages are out and were never acknowledged. Raises as `finish` does."""
        self._stop.set()
        self.finish(timeout)
        return self._first.sent + self._rest.sent - self.messages

    def _raise_failure(self) -> None:
        if self._error is not None:
            raise BlockhouseError(f"production failed: {self._error}") from self._error

    def _run(self) -> None:
        try:
            spec = replace(self._spec, messages=self._spec.messages - self._first.sent)
            with self._manifest.open("a") as lines:
                generate(
                    spec,
                    self._clusters,
                    self._topic,
                    self._pools,
                    manifest=lines,
                    stop=self._stop.is_set,
                    progress=self._keep,
                )
        except Exception as error:  # noqa: BLE001 - raised again in the thread that runs the scenario
            self._error = error

    def _keep(self, result: LoadResult) -> None:
        self._rest = result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)
