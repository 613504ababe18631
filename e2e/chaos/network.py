"""Faults between two processes on loopback, by packet filter: in a namespace of our own, never in the machine's.

Each process runs under a group id of its own, which marks its connections (`CONNMARK` on the first packet). A rule
names the marks of one side and the ports of the other: both directions of a connection are hit and no others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from e2e.stack.server import StackError

INSIDE = "BLOCKHOUSE_CHAOS_NAMESPACE"
FIRST_GROUP = 61_000


_EVERY_RULE = (
    "-t mangle -A OUTPUT -p tcp --syn -m owner --gid-owner 1 -j CONNMARK --set-mark 1",
    "-A OUTPUT -p tcp -m multiport --dports 1,2 -m statistic --mode random --probability 0.5 -j DROP",
    "-A OUTPUT -p tcp -m connmark --mark 1 -m multiport --sports 1,2 -j REJECT --reject-with tcp-reset",
    "-t nat -A OUTPUT -p tcp -m owner --gid-owner 1 --dport 1 -j REDIRECT --to-ports 2",
)
"""One of each kind that `Network` makes: a kernel may lack a module of any."""


def permitted() -> bool:
    """Whether this machine lets us make namespaces and packet filters."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("unshare", "ip", "iptables", "setpriv", "mount")):
        return False
    probe = ["unshare", "--net", "--mount", "sh", "-c", " && ".join(f"iptables {rule}" for rule in _EVERY_RULE)]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def enter(command: Sequence[str]) -> None:
    """Replace this process by `command` in a network and mount namespace of its own; returns only if it is in one."""
    if os.environ.get(INSIDE) == str(os.getpid()):
        _run("ip", "link", "set", "lo", "up")
        return
    os.environ[INSIDE] = str(os.getpid())  # exec and unshare keep the pid; a child of ours has another one
    os.execvp("unshare", ["unshare", "--net", "--mount", "--propagation", "private", "--", *command])


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One process: the group it runs under and the ports it listens on."""

    group: int
    ports: tuple[int, ...]


class Network:
    """Rules that can be put up and taken down by name. Only inside `enter`."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._rules: dict[str, list[list[str]]] = {}
        for endpoint in endpoints.values():
            owner = ["-m", "owner", "--gid-owner", str(endpoint.group)]
            _run("iptables", "-t", "mangle", "-A", "OUTPUT", "-p", "tcp", "--syn", *owner, *_mark(endpoint.group))

    def cut(self, name: str, one: Iterable[str], other: Iterable[str], *, share: float = 1.0) -> None:
        """Drop a share of the packets between the two sides, until `repair(name)`."""
        dice = [] if share >= 1 else ["-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}"]
        self._add(name, [[*match, *dice, "-j", "DROP"] for match in self._between(list(one), list(other))])

    def reset(self, name: str, one: Iterable[str], other: Iterable[str]) -> None:
        """Answer every packet of open connections between the two sides with a reset, until `repair(name)`."""
        reject = ["-j", "REJECT", "--reject-with", "tcp-reset"]
        self._add(name, [[*match, *reject] for match in self._between(list(one), list(other))])

    def redirect(self, name: str, one: Iterable[str], port: int, to: int) -> None:
        """Connections that the processes `one` open to `port` go to `to`, until `repair(name)`."""
        rules = [
            ["-p", "tcp", "-m", "owner", "--gid-owner", str(self._endpoints[process].group), "--dport", str(port)]
            for process in one
        ]
        self._add(name, [[*rule, "-j", "REDIRECT", "--to-ports", str(to)] for rule in rules], table="nat")

    def repair(self, name: str) -> None:
        for rule in self._rules.pop(name, []):
            _run("iptables", *(word if word != "-A" else "-D" for word in rule))

    def repair_all(self) -> None:
        for name in list(self._rules):
            self.repair(name)

    def _add(self, name: str, matches: Iterable[list[str]], *, table: str = "filter") -> None:
        for match in matches:
            rule = ["-t", table, "-A", "OUTPUT", *match]
            _run("iptables", *rule)
            self._rules.setdefault(name, []).append(rule)

    def _between(self, one: Sequence[str], other: Sequence[str]) -> Iterable[list[str]]:
        """Both directions of every connection that either side opens to the other."""
        for client, server in chain(product(one, other), product(other, one)):
            mark = ["-p", "tcp", "-m", "connmark", "--mark", str(self._endpoints[client].group), "-m", "multiport"]
            if ports := ",".join(map(str, self._endpoints[server].ports)):
                yield [*mark, "--dports", ports]
                yield [*mark, "--sports", ports]


class SmallDisk:
    """A file system of its own for one folder, which can be filled at once. Only inside `enter`."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._size = size

    def mount(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", str(self._folder))

    @retry(retry=retry_if_exception_type(StackError), stop=stop_after_attempt(20), reraise=True)
    def fill(self) -> None:
        """Leave less than a page free. The server still writes between question and answer, and the kernel refuses
        a size that is exceeded by then: ask again."""
        usage = shutil.disk_usage(self._folder)
        _run("mount", "-o", f"remount,size={usage.used}", str(self._folder))

    def relieve(self) -> None:
        _run("mount", "-o", f"remount,size={self._size}", str(self._folder))

    def unmount(self) -> None:
        _run("umount", "--lazy", str(self._folder))


def _mark(group: int) -> list[str]:
    return ["-j", "CONNMARK", "--set-mark", str(group)]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
