"""What scenarios ask of a Kubernetes, no matter how it was created: kubectl and helm as its administrator.

`Cluster` is one that is created here and dies with the test, `GivenCluster` one that the user brings. What only the
first has (its audit log, its programs) is not here.
"""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from e2e.cluster.audit import AuditLog
from e2e.cluster.reading import Reader
from e2e.cluster.spec import ClusterError

POD_SECURITY, RESTRICTED = "pod-security.kubernetes.io/enforce", "restricted"


class Programs(Protocol):
    """Where `kubectl` and `helm` are."""

    def __getitem__(self, name: str) -> str: ...


class Access(ABC):
    """An administrator's way to an API server. Every method raises ClusterError with the server's answer."""

    binaries: Programs

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""

    @property
    @abstractmethod
    def audit(self) -> AuditLog:
        """Every request that was answered; ClusterError where they are not recorded."""

    @abstractmethod
    def kubeconfig_of(self, service_account: str, namespace: str, path: Path) -> Path:
        """Writes a kubeconfig with which one is the service account, and nothing more."""

    def make_namespace(self, name: str) -> None:
        """Makes a namespace that admits restricted pods alone, or leaves it as it is."""
        metadata = {"name": name, "labels": {POD_SECURITY: RESTRICTED}}
        self.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Output of kubectl."""
        return kubectl(self.binaries, self.kubeconfig, *arguments, stdin=stdin, timeout=timeout)

    def get(self, kind: str, name: str = "", *options: str) -> Any:
        """An object, or a list under "items", as `kubectl get ... -o json` prints it; options are -n, -l and -A."""
        if name.startswith("-"):
            name, options = "", (name, *options)
        words = iter(options)
        given = {word: "" if word == "-A" else next(words, "") for word in words}
        if unknown := given.keys() - {"-n", "-l", "-A"}:
            raise ValueError(f"options of get are -n, -l and -A, not {', '.join(sorted(unknown))}")
        namespace = given.get("-n", None if "-A" in given else "default")
        if name:
            return self._reader.object(kind, name, namespace)
        return {"items": self._reader.objects(kind, namespace, given.get("-l", ""))}

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.kubeconfig)

    def apply(self, manifests: list[dict[str, Any]]) -> None:
        """Server-side apply, as a user of GitOps does."""
        if manifests:
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def helm(self, *arguments: str, timeout: float = 120) -> str:
        """Output of helm."""
        return run([self.binaries["helm"], "--kubeconfig", str(self.kubeconfig), *arguments], timeout=timeout)

    def token_of(self, service_account: str, namespace: str) -> str:
        """A bearer token of a service account, good for a day at most."""
        return self.kubectl("create", "token", service_account, "-n", namespace, "--duration=24h").strip()


def kubectl(
    binaries: Programs, kubeconfig: Path, *arguments: str, stdin: str | None = None, timeout: float = 120
) -> str:
    """Output of kubectl on any cluster. ClusterError with its message when it fails or takes too long."""
    return run([binaries["kubectl"], "--kubeconfig", str(kubeconfig), *arguments], stdin=stdin, timeout=timeout)


def run(command: list[str], *, stdin: str | None = None, timeout: float = 120) -> str:
    """Standard output of a command. ClusterError with its last words when it fails or takes too long."""
    words = " ".join(command[3:] if "--kubeconfig" in command else command)
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{words}` took more than {timeout:g} s") from error
    if done.returncode != 0:
        raise ClusterError(f"`{words}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
