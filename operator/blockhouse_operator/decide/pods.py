"""What a pod's object shows, in the few words that decisions need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from blockhouse_operator.api import names
from blockhouse_operator.api.labels import SPEC_HASH
from blockhouse_operator.api.status import RestartStatus
from blockhouse_operator.decide.restarts import demanded
from blockhouse_operator.decide.seen import PodSeen

PASSING = frozenset({"ContainerCreating", "PodInitializing"})


def pod_seen(pod: Mapping[str, Any], restart: RestartStatus | None = None) -> PodSeen:
    """`restart` is the last demand to restart all replicas."""
    meta, status = pod["metadata"], pod.get("status") or {}
    statuses = status.get("containerStatuses") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
    return PodSeen(
        ready=ready,
        secure=speaks_tls(pod),
        terminating=bool(meta.get("deletionTimestamp")),
        spec_hash=(meta.get("annotations") or {}).get(SPEC_HASH, ""),
        restart_demanded=demanded(pod, restart),
        restarts=sum(container.get("restartCount", 0) for container in statuses),
        trouble="" if ready else next(_troubles(status), ""),
        node=(pod.get("spec") or {}).get("nodeName", ""),
        ends_by=meta.get("deletionTimestamp") or "",
    )


def speaks_tls(pod: Mapping[str, Any]) -> bool:
    """Whether its admin API does: a pod that was created before `adminTls` was given does not."""
    probes = (
        (each.get("livenessProbe") or {}).get("httpGet") or {}
        for each in (pod.get("spec") or {}).get("containers") or ()
    )
    return any(probe.get("port") == names.ADMIN_PORT and probe.get("scheme") == "HTTPS" for probe in probes)


def running(pod: Mapping[str, Any]) -> bool:
    """Whether its aggregator may answer: a pod without a process is not asked."""
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Running" and not pod["metadata"].get("deletionTimestamp")


def _troubles(status: Mapping[str, Any]) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"{condition.get('reason', 'not scheduled')}: {condition.get('message', '')}"[:300]
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in PASSING:
            text = f"{container['name']}: {waiting.get('reason', 'waiting')} {waiting.get('message', '')}"
            yield text.strip()[:300]
    if status.get("phase") == "Failed":
        yield f"Failed: {status.get('reason') or ''} {status.get('message') or ''}".strip()[:300]
