"""The programs of a real node, each in the node's namespaces."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.binaries import Binaries
from e2e.cluster.pki import Authority
from e2e.cluster.programs import ApiServer
from e2e.node.namespaces import Namespaces
from e2e.stack.server import Server

NODE = "node-1"
DNS_ADDRESS = "10.96.0.10"
DNS_PORT = 5353
PAUSE = "docker.io/blockhouse/pause:dev"
PLUGINS = "/usr/lib/cni"


class NodeProgram(Server):
    """A program inside of the namespaces. `identity` is how it calls itself towards the API server."""

    program: str
    identity: str = ""

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        authority: Authority,
        namespaces: Namespaces,
        api: ApiServer,
        *,
        dies_with_parent: bool,
    ) -> None:
        super().__init__(self.program, folder / self.program, dies_with_parent=dies_with_parent)
        self.binaries = binaries
        self.authority = authority
        self.namespaces = namespaces
        self.api = api

    def command(self) -> list[str]:
        raise NotImplementedError

    def prepare(self) -> list[str]:
        return [*self.namespaces.inside, *self.command()]

    def kubeconfig(self) -> Path:
        hosts = [f"DNS:{NODE}", f"IP:{self.namespaces.network.inside}"]
        identity = self.authority.issue(self.program, self.identity, hosts)
        return self.authority.kubeconfig(self.folder / "kubeconfig", self.api.url, identity=identity)

    def run_inside(self, *command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.namespaces.inside, *command], capture_output=True, text=True, timeout=timeout, check=False
        )

    def listens(self, host: str, port: int) -> bool:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            return False
        return True


class Containerd(NodeProgram):
    program = "containerd"

    @property
    def socket(self) -> Path:
        return self.folder / "containerd.sock"

    def ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line of containerd, on the images and containers of Kubernetes."""
        return self.run_inside("ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments)

    def answers(self) -> bool:
        return self.socket.exists() and self.ctr("version").returncode == 0

    def command(self) -> list[str]:
        network = self.folder / "net.d"
        network.mkdir(exist_ok=True)
        (network / "10-pods.conflist").write_text(json.dumps(self._pod_network()))
        config = self.folder / "config.toml"
        config.write_text(self._config(network))
        return ["containerd", "--config", str(config)]

    def _pod_network(self) -> dict[str, Any]:
        addresses = {
            "type": "host-local",
            "ranges": [[{"subnet": self.namespaces.network.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self.folder / "addresses"),
        }
        bridge = {"type": "bridge", "bridge": "pods0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}

    def _config(self, network: Path) -> str:
        return f"""\
version = 2
root = "{self.folder}/root"
state = "{self.folder}/state"
[grpc]
  address = "{self.socket}"
# Nothing is collected in a node's short life: a collection in the middle of an import has taken an image's index away.
[plugins."io.containerd.gc.v1.scheduler"]
  startup_delay = "1h"
  schedule_delay = "1h"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Without the right to lower a process's score runc would not start anything.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{network}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""


class Kubelet(NodeProgram):
    program = "kubelet"
    identity = f"/O=system:nodes/CN=system:node:{NODE}"
    containerd: Containerd

    def answers(self) -> bool:
        return self.listens(self.namespaces.network.inside, 10250)

    def command(self) -> list[str]:
        kubeconfig = self.kubeconfig()
        config = self.folder / "config.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        # Names that the cluster's DNS does not know do not exist.
        (self.folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        return [
            self.binaries["kubelet"],
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self.folder / 'root'}",
            f"--hostname-override={NODE}",
            f"--node-ip={self.namespaces.network.inside}",
            f"--cert-dir={self.folder / 'certificates'}",
            "--node-labels=topology.kubernetes.io/zone=dc-a",
        ]

    def _config(self) -> dict[str, Any]:
        certificate, key = self.authority.issue(self.program, self.identity)
        nothing = {
            "memory.available": "50Mi",
            **dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"), "0%"),
        }
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.namespaces.network.inside,
            "healthzBindAddress": "127.0.0.1",
            "tlsCertFile": str(certificate),
            "tlsPrivateKeyFile": str(key),
            "authentication": {
                "x509": {"clientCAFile": str(self.authority.certificate)},
                "webhook": {"enabled": True},
                "anonymous": {"enabled": False},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDomain": "cluster.local",
            "clusterDNS": [DNS_ADDRESS],
            "containerRuntimeEndpoint": f"unix://{self.containerd.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.namespaces.cgroup,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "failCgroupV1": False,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": nothing,
            "maxPods": 200,
            "syncFrequency": "10s",
            "nodeStatusUpdateFrequency": "4s",
            "registryPullQPS": 0,
            "resolvConf": str(self.folder / "resolv.conf"),
            "volumePluginDir": str(self.folder / "plugins"),
        }


class KubeProxy(NodeProgram):
    program = "kube-proxy"
    identity = "/CN=system:kube-proxy"

    def answers(self) -> bool:
        return self.listens(self.namespaces.network.inside, 10256)

    def command(self) -> list[str]:
        config = self.folder / "config.yaml"
        content = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": self.namespaces.network.pods,
            "clientConnection": {"kubeconfig": str(self.kubeconfig())},
            "healthzBindAddress": f"{self.namespaces.network.inside}:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            # Zeros: it sets no sysctl of the machine.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
        config.write_text(yaml.safe_dump(content))
        return [self.binaries["kube-proxy"], f"--config={config}", f"--hostname-override={NODE}"]


class CoreDns(NodeProgram):
    """Names of Services, at the node's address; the Service kube-dns leads there."""

    program = "coredns"
    identity = "/O=system:masters/CN=coredns"

    def answers(self) -> bool:
        return self.listens(self.namespaces.network.inside, DNS_PORT)

    def command(self) -> list[str]:
        corefile = self.folder / "Corefile"
        corefile.write_text(
            f""".:{DNS_PORT} {{
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {self.kubeconfig()}
    pods insecure
    ttl 1
  }}
}}
"""
        )
        return [self.binaries["coredns"], "-conf", str(corefile)]

    def manifests(self) -> list[dict[str, Any]]:
        """The Service kube-dns and where it leads."""
        ports = [{"name": "dns", "port": DNS_PORT, "protocol": "UDP"}, {"name": "dns-tcp", "port": DNS_PORT}]
        return [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "kube-dns", "namespace": "kube-system"},
                "spec": {
                    "clusterIP": DNS_ADDRESS,
                    "ports": [
                        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": DNS_PORT},
                        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": DNS_PORT},
                    ],
                },
            },
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "kube-dns-node",
                    "namespace": "kube-system",
                    "labels": {"kubernetes.io/service-name": "kube-dns"},
                },
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [
                    {"addresses": [self.namespaces.network.inside], "conditions": {"ready": True}},
                ],
            },
        ]
