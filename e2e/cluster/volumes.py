"""Volumes for claims: a folder each. A cluster without a provisioner leaves each pod with a claim pending indefinitely.

Runs as a process of its own (`python -m e2e.cluster.volumes KUBECONFIG FOLDER`), so that a detached cluster has it too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kubernetes import client, config

from e2e.cluster.follow import REQUEST_SECONDS, follow, patiently
from e2e.cluster.spec import ClusterError
from e2e.stack.server import Server

PROVISIONER = "blockhouse.test/folders"


def storage_class(name: str, *, local: bool = False, grows: bool = True) -> dict[str, Any]:
    """A class of volumes of ours. A `local` volume is on the node of its first pod, and none of Kubernetes' own
    controllers enlarges it; unless it `grows`, the API server refuses a claim that asks for more."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer" if local else "Immediate",
        "allowVolumeExpansion": grows,
    }


STORAGE_CLASS: dict[str, Any] = storage_class("folders")
STORAGE_CLASS["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}

READY = "watching claims"


class VolumeProvisioner(Server):
    """The process. It answers once it has reported that it watches."""

    def __init__(self, folder: Path, *, kubeconfig: Path, dies_with_parent: bool) -> None:
        super().__init__("volumes", folder / "volumes", dies_with_parent=dies_with_parent)
        self.kubeconfig = kubeconfig

    def prepare(self) -> list[str]:
        self.log.unlink(missing_ok=True)
        return [sys.executable, "-m", "e2e.cluster.volumes", str(self.kubeconfig), str(self.folder / "data")]

    def answers(self) -> bool:
        return self.log.exists() and READY in self.log.read_text()


def volume(claim: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The volume that only `claim` may bind, as big as it asks."""
    metadata, spec = claim["metadata"], claim["spec"]
    path = str(folder / metadata["namespace"] / metadata["name"])
    node = (metadata.get("annotations") or {}).get("volume.kubernetes.io/selected-node")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{metadata['uid']}", "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Retain",
            **(_on_node(node, path) if node else {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}),
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }


def _on_node(node: str, path: str) -> dict[str, Any]:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "local": {"path": path},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }


def provision(core: Any, claim: dict[str, Any], folder: Path) -> None:
    """Makes the claim's volume, unless it has one."""
    annotations = claim["metadata"].get("annotations") or {}
    if claim["spec"].get("volumeName") or annotations.get("volume.kubernetes.io/storage-provisioner") != PROVISIONER:
        return
    place = folder / claim["metadata"]["namespace"] / claim["metadata"]["name"]
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o777)  # pods run as users of their own, and hostPath volumes do not follow fsGroup
    try:
        patiently(lambda: core.create_persistent_volume(volume(claim, folder), _request_timeout=REQUEST_SECONDS))
    except client.ApiException as error:
        if error.status != 409:
            raise


def main() -> None:
    kubeconfig, folder = sys.argv[1:]
    config.load_kube_config(kubeconfig)  # type: ignore[no-untyped-call]
    core = client.CoreV1Api()
    print(READY, flush=True)  # noqa: T201  its log is what the one who started it reads
    for sort, claim in follow(core.list_persistent_volume_claim_for_all_namespaces):
        if sort != "DELETED":
            provision(core, claim, Path(folder))


if __name__ == "__main__":
    try:
        main()
    except client.ApiException as error:
        raise ClusterError(f"the API server refused: {error}") from error
