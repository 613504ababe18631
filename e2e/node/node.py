"""A cluster with one real node: pods run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from e2e.cluster import Cluster, ClusterError, ClusterSpec
from e2e.node.namespaces import Namespaces, Network
from e2e.node.programs import NODE, Containerd, CoreDns, Kubelet, KubeProxy, NodeProgram
from e2e.stack.stage import Stage

P = TypeVar("P", bound=NodeProgram)

IMAGES = Path(__file__).parents[2] / "scripts" / "images"


def archives(*names: str) -> dict[str, Path]:
    """Archives of images by name, built when their sources changed. ClusterError when that fails."""
    done = subprocess.run([IMAGES, *names], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"scripts/images {' '.join(names)} failed:\n{done.stderr[-3000:]}")
    return {name: Path(path) for name, path in (line.split(maxsplit=1) for line in done.stdout.splitlines())}


class Node:
    """The programs of one node of a cluster. A context manager; pods die with it."""

    def __init__(self, folder: Path, cluster: Cluster, network: Network, *, dies_with_parent: bool = True) -> None:
        self.folder = folder.absolute()
        self.cluster = cluster
        self.namespaces = Namespaces(self.folder, network, dies_with_parent=dies_with_parent)
        self.containerd = self._program(Containerd, dies_with_parent)
        self.kubelet = self._program(Kubelet, dies_with_parent)
        self.kubelet.containerd = self.containerd
        self.proxy = self._program(KubeProxy, dies_with_parent)
        self.dns = self._program(CoreDns, dies_with_parent)

    def start(self, images: Sequence[Path]) -> None:
        """Starts everything, imports the images and waits until the node is ready."""
        self.containerd.start()
        self.load(*images)
        self.cluster.apply(self.dns.manifests())
        with ThreadPoolExecutor() as pool:
            for future in [pool.submit(program.start) for program in (self.kubelet, self.proxy, self.dns)]:
                future.result()
        self.cluster.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=300s", timeout=330)

    def load(self, *images: Path) -> None:
        """Imports OCI archives under the names they carry."""
        for image in images:
            name = f"docker.io/blockhouse/{image.stem}:dev"
            done = self.containerd.ctr("images", "import", "--index-name", name, str(image))
            if done.returncode != 0:
                raise ClusterError(f"containerd does not import {image}: {done.stderr.strip()}")

    def close(self) -> None:
        """Ends the node with all its pods, and takes away what they leave in the kernel and on disk."""
        for program in (self.kubelet, self.proxy, self.dns, self.containerd):
            program.kill()
        self.namespaces.kill()
        self.namespaces.remove_cgroups()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _program(self, kind: type[P], dies_with_parent: bool) -> P:
        cluster = self.cluster
        return kind(
            self.folder,
            cluster.binaries,
            cluster.authority,
            self.namespaces,
            cluster.api,
            dies_with_parent=dies_with_parent,
        )


class NodeCluster(Stage):
    """A control plane and one real node, with images at hand. A context manager: nothing outlives it."""

    def __init__(self, folder: Path, images: Sequence[str]) -> None:
        self.folder = folder.absolute()
        self.network = Network.free()
        self._images = ("pause", *images)
        self.cluster = Cluster(self.folder / "cluster", ClusterSpec(zones=(), address=self.network.outside))
        self.node = Node(self.folder / "node", self.cluster, self.network)

    def start(self) -> None:
        images = archives(*self._images)
        self.folder.mkdir(parents=True, exist_ok=True)
        # The API server listens at this machine's end of the node's wire.
        self.node.namespaces.start()
        self.cluster.start()
        self.node.start([images[name] for name in self._images])

    def close(self) -> None:
        self.node.close()
        self.cluster.close()
