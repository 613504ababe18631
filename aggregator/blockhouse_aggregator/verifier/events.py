"""Anomalies as Kubernetes Events about the pipeline's object, so that `kubectl describe` shows them.

Events are a courtesy: when they cannot be written, that is logged, and nothing else suffers.
"""

from __future__ import annotations

import queue
import threading
import uuid
from datetime import UTC, datetime
from typing import Any

import structlog

from blockhouse.config.verifier import KubernetesEvents
from blockhouse.contract.verifier import AnomalyReport
from blockhouse_aggregator.verifier.anomaly import Anomaly

log = structlog.get_logger(__name__)
_MESSAGE = 1024
"""Characters an Event's message may have."""
_WAITING = 200


class EventSink:
    """Writes Events from a thread of its own; `put` never waits."""

    def __init__(self, about: KubernetesEvents, pipeline: str, api: Any = None) -> None:
        self._about, self._pipeline = about, pipeline
        self._api = api
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, name="kubernetes-events", daemon=True)
        self._thread.start()

    def put(self, anomaly: Anomaly, report: AnomalyReport) -> None:
        try:
            self._waiting.put_nowait(event_of(self._about, self._pipeline, anomaly, report))
        except queue.Full:
            log.warning("event.dropped", anomaly=anomaly.id)

    def close(self) -> None:
        """Write what waits, then end; at most a few seconds."""
        self._waiting.put(None)
        self._thread.join(5.0)

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._connected().create_namespaced_event(self._about.namespace, event, _request_timeout=5)
            except Exception as error:  # noqa: BLE001 (the client's errors are many, and none may end the watch)
                log.warning("event.not_written", error=f"{type(error).__name__}: {error}")

    def _connected(self) -> Any:
        if self._api is None:
            from kubernetes import client, config

            config.load_incluster_config()  # type: ignore[no-untyped-call]
            self._api = client.CoreV1Api()
        return self._api


def event_of(about: KubernetesEvents, pipeline: str, anomaly: Anomaly, report: AnomalyReport) -> dict[str, Any]:
    """The manifest of a core/v1 Event. Metadata texts stay out: they are in `GET /anomalies` and the log."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    finding = anomaly.finding
    table = f" table {report.table}" if report.table else ""
    where = f" offsets {finding.first}..{finding.last}" if finding.first is not None else ""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about.name}.{uuid.uuid4().hex[:16]}", "namespace": about.namespace},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
        },
        "type": "Warning",
        "reason": "".join(word.capitalize() for word in ("anomaly", *str(finding.kind).split("-"))),
        "message": f"{anomaly.stream}{table}{where}: {finding.message}"[:_MESSAGE],
        "source": {"component": f"blockhouse-verifier-{pipeline}"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
