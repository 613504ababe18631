"""The namespaces of a node: network, processes and mounts, all ended by the kernel when their first process dies.

The network has one wire, to this machine: no way out. Pods reach what listens at `outside` (API server, Kafka,
ZooKeeper), and this machine reaches the pods.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from e2e.cluster.access import run
from e2e.cluster.spec import ClusterError
from e2e.stack.process import wait_until
from e2e.stack.server import Server

CGROUPS = Path("/sys/fs/cgroup")

SHARES = {"cpu.shares": "8192", "cpu.weight": "800"}
"""What all pods together weigh against one other process of this machine, in versions 1 and 2 of control groups: as
much as eight. By default they weigh one, and on a busy machine every probe of theirs fails."""

FIRST_PROCESS = """\
mount --make-rshared /
mkdir -p /run/netns /run/containerd /var/lib/cni /var/lib/kubelet /var/log/pods /var/log/containers
for folder in /run/netns /run/containerd /var/lib/cni /var/lib/kubelet /var/log/pods /var/log/containers; do
  mount -t tmpfs tmpfs $folder
done
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables 2>/dev/null || true
# Orphans are reaped by whom ignores their deaths.
trap '' CHLD
echo namespaces are ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Network:
    """Addresses of a node, different for each `number` from 0 to 199."""

    number: int

    @property
    def outside(self) -> str:
        """This machine's end of the wire."""
        return f"10.213.{self.number}.254"

    @property
    def inside(self) -> str:
        """The node's address."""
        return f"10.213.{self.number}.1"

    @property
    def pods(self) -> str:
        return f"10.214.{self.number}.0/24"

    @property
    def device(self) -> str:
        return f"bhnode{self.number}"

    @classmethod
    def free(cls) -> Network:
        """One whose device does not exist. ClusterError when all are taken."""
        for number in range(200):
            network = cls(number)
            if not Path(f"/sys/class/net/{network.device}").exists():
                return network
        raise ClusterError("200 nodes run on this machine already")


class Namespaces(Server):
    """The first process of a node's namespaces; `inside` is how to run a command in them."""

    def __init__(self, folder: Path, network: Network, *, dies_with_parent: bool) -> None:
        super().__init__("namespaces", folder / "namespaces", dies_with_parent=dies_with_parent)
        self.network = network
        self._wired = False

    def prepare(self) -> list[str]:
        if os.geteuid() != 0:
            raise ClusterError("a node needs root: it makes namespaces and runs containers")
        for program in ("containerd", "runc", "nsenter", "unshare", "iptables", "conntrack"):
            if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
                raise ClusterError(f"a node needs {program}: run `scripts/setup node`")
        self.log.unlink(missing_ok=True)
        self.remove_cgroups()  # of one that was killed
        self.make_cgroups()
        return [
            *("unshare", "--net", "--pid", "--mount", "--fork", "--kill-child=KILL", "--mount-proc"),
            *("sh", "-euc", FIRST_PROCESS),
        ]

    def answers(self) -> bool:
        return self.log.exists() and "namespaces are ready" in self.log.read_text() and self._wire()

    @property
    def inside(self) -> list[str]:
        """Put before a command it runs in the namespaces. Not `ip netns exec`: that hides the cgroups."""
        return ["nsenter", f"--target={self._first().pid}", "--net", "--pid", "--mount", "--"]

    @property
    def cgroup(self) -> str:
        """Below which all pods of the node are."""
        return f"/blockhouse-node-{self.network.number}"

    def make_cgroups(self) -> None:
        """Makes the root of the pods' groups in every hierarchy: the kubelet wants it to exist."""
        for hierarchy in cgroup_hierarchies():
            folder = hierarchy / self.cgroup.strip("/")
            folder.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (folder / name).exists() and not (folder / name).read_text().strip():
                    (folder / name).write_text((hierarchy / name).read_text())
            for name, value in SHARES.items():
                if (folder / name).exists():
                    (folder / name).write_text(value)

    def remove_cgroups(self) -> None:
        """Removes the groups that the node's pods leave behind."""
        for hierarchy in cgroup_hierarchies():
            root = hierarchy / self.cgroup.strip("/")
            if root.exists():
                wait_until(lambda root=root: _removed(root), timeout=10)  # type: ignore[misc]

    def _wire(self) -> bool:
        """Lays the wire, once."""
        if not self._wired:
            net, pid = self.network, str(self._first().pid)
            ip("link", "add", net.device, "type", "veth", "peer", "name", "node0", "netns", pid)
            ip("addr", "add", f"{net.outside}/24", "dev", net.device)
            ip("link", "set", net.device, "up")
            inner = ["nsenter", f"--target={pid}", "--net", "--"]
            ip("addr", "add", f"{net.inside}/24", "dev", "node0", inside=inner)
            ip("link", "set", "node0", "up", inside=inner)
            ip("route", "add", "default", "via", net.outside, inside=inner)
            ip("route", "add", net.pods, "via", net.inside)
            self._wired = True
        return True

    def _first(self) -> psutil.Process:
        """The first process inside: the child of `unshare`."""
        assert self.pid is not None, "the namespaces do not exist"
        return psutil.Process(self.pid).children()[0]


def cgroup_hierarchies() -> list[Path]:
    """The mounted hierarchies of version 1, or the one of version 2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [folder for folder in CGROUPS.iterdir() if folder.is_dir() and (folder / "cgroup.procs").exists()]


def ip(*arguments: str, inside: list[str] | None = None) -> None:
    run([*(inside or []), "ip", *arguments])


def _removed(root: Path) -> bool:
    """Removes a tree of groups from its leaves; False while one still has a process."""
    command = ["find", str(root), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"]
    subprocess.run(command, capture_output=True, check=False)
    return not root.exists()
