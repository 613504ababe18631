"""A Kubernetes that the user brings, for scenarios that need no more of it than its API.

It is used only when it is named: `BLOCKHOUSE_E2E_KUBECONFIG` is a file, and no `KUBECONFIG` or `~/.kube/config`
is ever read. Where Blockhouse is installed already it is refused before anything is written. What was there before
is never changed, and what was created here is removed at the end.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from e2e.cluster.access import POD_SECURITY, RESTRICTED, Access, Programs, run
from e2e.cluster.audit import AuditLog
from e2e.cluster.spec import ClusterError
from e2e.stack.stage import Stage

VARIABLE = "BLOCKHOUSE_E2E_KUBECONFIG"
CONTEXT = "BLOCKHOUSE_E2E_CONTEXT"
GROUP = "ingest.blockhouse.dev"
SYSTEM = "blockhouse-system"
CRDS = Path(__file__).parents[2] / "crds"


class OnPath:
    """The programs of the user who brings the cluster."""

    def __getitem__(self, name: str) -> str:
        """The path of a program. ClusterError when there is none."""
        found = shutil.which(name)
        if found is None:
            raise ClusterError(f"{name} is not on the PATH: install it, or use PATH=$(scripts/cluster-binaries):$PATH")
        return found


class GivenCluster(Access, Stage):
    """One context of a kubeconfig, and of that a copy: nothing that changes the file meanwhile leads elsewhere.

    As a context manager it takes the cluster for this run, installs the CRDs, and removes in the end what it and the
    scenarios made. ClusterError when the file, its context or the cluster cannot be used.
    """

    def __init__(self, source: Path, context: str, folder: Path, binaries: Programs | None = None) -> None:
        self.binaries = binaries or OnPath()
        whole = self._view(source)
        self.context = chosen_context(whole, context, source)
        self._content = self._view(source, "--minify", "--flatten", "--context", self.context)
        self._path = written(folder / "given.kubeconfig", self._content)
        self._made: list[str] = []

    @classmethod
    def of(cls, environment: Mapping[str, str], folder: Path) -> GivenCluster | None:
        """The one that the environment names; None when it names none."""
        source = environment.get(VARIABLE, "")
        return cls(Path(source), environment.get(CONTEXT, ""), folder) if source else None

    @property
    def kubeconfig(self) -> Path:
        return self._path

    @property
    def server(self) -> str:
        """The URL of its API server."""
        return str(self._content["clusters"][0]["cluster"]["server"])

    @property
    def audit(self) -> AuditLog:
        raise ClusterError("the audit log of a given cluster cannot be read: mark the scenario with own_cluster")

    def start(self) -> None:
        """Take the cluster and install the CRDs."""
        if installed := self.installed():
            raise ClusterError(refusal(self.context, self.server, installed))
        self.make_namespace(SYSTEM)  # the second of two runs fails here
        self.kubectl("apply", "--server-side", "-f", str(CRDS))
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))

    def make_namespace(self, name: str) -> None:
        """Makes one that admits restricted pods alone. ClusterError when there is one of that name: it is another's."""
        self.kubectl("create", "namespace", name)
        self._made.append(name)
        self.kubectl("label", "namespace", name, f"{POD_SECURITY}={RESTRICTED}")

    def installed(self) -> list[str]:
        """What shows that Blockhouse is, or was, installed here."""
        listed = self.kubectl("get", "customresourcedefinitions,namespaces", "-o", "name").split()
        return traces(listed)

    def kubeconfig_of(self, service_account: str, namespace: str, path: Path) -> Path:
        return written(path, with_token(self._content, self.token_of(service_account, namespace)))

    def close(self) -> None:
        """Removes what was created here: resources first, then their definitions, then the rights of the operator."""
        if not self._made:
            return
        self.kubectl("delete", "--ignore-not-found", "--timeout=300s", "-f", str(CRDS), timeout=330)
        releases = json.loads(self.helm("list", "--namespace", SYSTEM, "--output", "json"))
        for release in releases:
            self.helm("uninstall", release["name"], "--namespace", SYSTEM)
        self.kubectl("delete", "namespace", "--ignore-not-found", "--timeout=300s", *self._made, timeout=330)
        self._made.clear()

    def _view(self, source: Path, *options: str) -> dict[str, Any]:
        if not source.is_file():
            raise ClusterError(f"{VARIABLE}={source} is no file: name the kubeconfig of the cluster to use")
        view = ["config", "view", "--raw", *options, "-o", "json"]
        content: dict[str, Any] = json.loads(run([self.binaries["kubectl"], "--kubeconfig", str(source), *view]))
        return content


def chosen_context(content: Mapping[str, Any], requested: str, source: Path) -> str:
    """The context to use. ClusterError when it is not there, or when none of several was chosen."""
    names = [context["name"] for context in content.get("contexts") or ()]
    if requested and requested not in names:
        raise ClusterError(f"{source} has no context {requested}: {CONTEXT} is one of {', '.join(names) or 'none'}")
    if not requested and len(names) != 1:
        raise ClusterError(
            f"{source} has {len(names)} contexts: choose one with {CONTEXT}: {', '.join(names) or 'none'}"
        )
    return requested or str(names[0])


def traces(listed: Iterable[str]) -> list[str]:
    """Those of `kubectl get -o name` that an installation of Blockhouse has."""
    return [name for name in listed if name.endswith(f".{GROUP}") or name == f"namespace/{SYSTEM}"]


def refusal(context: str, server: str, installed: list[str]) -> str:
    return (
        f"the cluster of context {context} ({server}) has {', '.join(installed)}: Blockhouse is installed there, or "
        "a run of the scenarios was killed; nothing was changed. Use another cluster or, only if it was such a run, "
        f"`helm uninstall blockhouse -n {SYSTEM} --ignore-not-found; kubectl delete {' '.join(installed)}`"
    )


def with_token(content: Mapping[str, Any], token: str) -> dict[str, Any]:
    """The same cluster and context, as a user who has this token and nothing else."""
    result = deepcopy(dict(content))
    for user in result["users"]:
        user["user"] = {"token": token}
    return result


def written(path: Path, content: Mapping[str, Any]) -> Path:
    """Writes a kubeconfig that only its owner can read; JSON is YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))
    return path
