"""Manifests of the nodes that KWOK plays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from e2e.cluster.spec import Zone

ROOM = {"cpu": "16000", "memory": "64Ti", "pods": "2000", "ephemeral-storage": "64Ti"}


def fake_nodes(zones: Sequence[Zone]) -> list[dict[str, Any]]:
    """Nodes named ZONE-1, ZONE-2 ... with more room than any test fills."""
    return [_node(zone.name, number) for zone in zones for number in range(1, zone.nodes + 1)]


def _node(zone: str, number: int) -> dict[str, Any]:
    name = f"{zone}-{number}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": zone,
                "type": "kwok",
            },
        },
        "status": {"allocatable": ROOM, "capacity": ROOM},
    }
