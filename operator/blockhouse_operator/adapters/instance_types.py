"""The instance types of brokers that are pods: from a broker's host to its pod, its node and the node's label.

A broker whose host is no name of a pod, or whose node may not be read, has none: its capacity is unknown then.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from blockhouse.errors import Permanent
from blockhouse_operator.adapters.kinds import NODE, POD, Kind, Object
from blockhouse_operator.adapters.kubernetes import Kubernetes

log = structlog.get_logger(__name__)

LABEL = "node.kubernetes.io/instance-type"


async def instance_types(kubernetes: Kubernetes, hosts: Mapping[int, str], namespace: str) -> dict[int, str]:
    """By broker id. A host is `POD.SERVICE.NAMESPACE...`, or `POD.SERVICE` in `namespace`. Raises Retryable."""
    found: dict[int, str] = {}
    for broker, host in sorted(hosts.items()):
        pod, *rest = host.split(".")
        if not rest or host.replace(".", "").isdecimal():
            continue
        live = await _read(kubernetes, POD, rest[1] if len(rest) > 1 else namespace, pod)
        node_name = ((live or {}).get("spec") or {}).get("nodeName")
        node = await _read(kubernetes, NODE, "", node_name) if node_name else None
        kind = ((node or {}).get("metadata", {}).get("labels") or {}).get(LABEL)
        if kind:
            found[broker] = kind
    return found


async def _read(kubernetes: Kubernetes, kind: Kind, namespace: str, name: str) -> Object | None:
    try:
        return await kubernetes.get(kind, namespace, name)
    except Permanent as error:  # without rbac.instanceTypes of the chart
        log.warning("instance_type_unreadable", kind=kind.name, name=name, error=str(error))
        return None
