"""The volume of a claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from e2e.cluster.volumes import volume


def claim(**annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "data", "namespace": "n", "uid": "u", "annotations": annotations},
        "spec": {
            "resources": {"requests": {"storage": "1Gi"}},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "folders",
        },
    }


def test_it_can_be_used_from_everywhere() -> None:
    spec = volume(claim(), Path("/v"))["spec"]

    assert spec["hostPath"]["path"] == "/v/n/data"
    assert "nodeAffinity" not in spec


def test_a_local_one_is_on_the_node_that_the_scheduler_chose() -> None:
    spec = volume(claim(**{"volume.kubernetes.io/selected-node": "dc-a-1"}), Path("/v"))["spec"]

    assert spec["local"]["path"] == "/v/n/data"
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["dc-a-1"]}]
