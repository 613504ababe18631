"""A site: a Kubernetes, its surroundings, the simulator and operators. The judge of what happened is the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from blockhouse_operator.app import LOST
from e2e.cluster import Access, Cluster, ClusterError, GivenCluster, Request
from e2e.cluster.surroundings import Surroundings
from e2e.scenarios.operator import OperatorProcess
from e2e.scenarios.resources import Manifest
from e2e.scenarios.version import OURS, Version
from e2e.simulator import Simulator
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.server import Server

CHART = OURS.chart
RELEASE = "blockhouse"
SYSTEM = "blockhouse-system"


class Site:
    """What the scenarios share. The operator's service account is the chart's, so its rights are, too."""

    def __init__(self, folder: Path, cluster: Access, surroundings: Surroundings) -> None:
        self.folder = folder
        self.cluster = cluster
        self.surroundings = surroundings
        self._ports = Ports()
        self.simulator = Simulator(folder / "simulator", kubeconfig=cluster.kubeconfig, port=self._ports["simulator"])
        self._operators = 0
        self.version: Version = OURS
        """Whose chart is installed, and whose operators are started."""
        self.program: type[OperatorProcess] = OperatorProcess
        """What an operator is: one with another way to the API server, or with another clock."""
        self._kept: list[OperatorProcess] = []
        """Operators that are started again when they have lost their lease, as a Deployment does it."""
        self._vanishing: list[str] = []
        """Namespaces that were deleted, and may be there still."""

    def install(self, *arguments: str, release: str = RELEASE) -> None:
        """Installs the chart. Its Deployment has no pods: the operators are processes of ours."""
        self.cluster.helm(
            *("upgrade", "--install", release, str(self.version.chart), "--namespace", SYSTEM, "--create-namespace"),
            *("--set", "replicas=0", *arguments),
            *(("--set", "crds.install=false") if isinstance(self.cluster, GivenCluster) else ()),
        )

    @contextmanager
    def operator(self, name: str = "", *arguments: str, lead: bool = True) -> Iterator[OperatorProcess]:
        """An operator that runs until the end of the block; by default it leads when the block begins.

        It ends in order and gives its lease up, so that the next one need not wait until that has expired.
        """
        operator = self.start_operator(name, *arguments, lead=lead)
        self._kept.append(operator)
        try:
            yield operator
        finally:
            self._kept.remove(operator)
            operator.stop(grace=20)

    def keep_alive(self) -> None:
        """Start operators again that ended because they had lost their lease: on a crowded machine one can.

        ClusterError for one that ended otherwise, and for a program that plays a part of the cluster.
        """
        for operator in self._kept:
            if not operator.alive and operator.exit_code == LOST:
                operator.start(wait=False)
            elif not operator.alive:
                raise ClusterError(f"{operator.name} died, exit code {operator.exit_code}:\n{last_words(operator)}")
        for player in (self.simulator, *([self.cluster.volumes] if isinstance(self.cluster, Cluster) else ())):
            if not player.alive:
                raise ClusterError(f"{player.name} died:\n{last_words(player)}")

    def start_operator(
        self, name: str = "", *arguments: str, lead: bool = True, release: str = RELEASE
    ) -> OperatorProcess:
        """An operator with the rights and the lease of a release of the chart."""
        self._operators += 1
        account = f"{release}-operator"
        name = name or f"operator-{self._operators}"
        folder = self.folder / f"{name}-{self._operators}"
        operator = self.program(
            name,
            folder,
            kubeconfig=self.cluster.kubeconfig_of(account, SYSTEM, folder / "kubeconfig"),
            port=self._ports[f"operator-{self._operators}"],
            arguments=(
                *("--lease-namespace", SYSTEM, "--lease-name", account, "--resync", "5s"),
                *arguments,
            ),
        )
        operator.variables = {**self.version.variables, **self.simulator.ways}
        operator.start()
        if lead:
            try:
                self.wait(f"{name} leads", lambda: operator.state == "leading", timeout=180)
            except ClusterError:
                operator.kill()  # nothing else knows of it
                raise
        return operator

    def namespace(self, name: str) -> str:
        self.cluster.make_namespace(name)
        return name

    def remove_namespace(self, name: str) -> None:
        """Deletes a namespace, which takes its time: `close` waits for the end of it. Its pipelines go first, at once:
        the next operator would try to complete them."""
        for kind in ("kr", "km", "ba", "csi"):
            self.cluster.kubectl("delete", kind, "--all", "-n", name, "--timeout=60s", timeout=90)
        self.cluster.kubectl("delete", "namespace", name, "--wait=false")
        self._vanishing.append(name)

    def apply(self, *manifests: Manifest) -> None:
        self.cluster.apply(list(manifests))

    def condition(self, kind: str, name: str, namespace: str, condition: str) -> dict[str, Any]:
        """A condition of an object; empty when it has none of this type, or does not exist."""
        try:
            found = self.cluster.get(kind, name, "-n", namespace)
        except ClusterError:
            return {}
        conditions = found.get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == condition), {})

    def wait_ready(self, name: str, namespace: str, *, timeout: float = 600) -> dict[str, Any]:
        """Waits until the BlockAggregator is Ready at its present generation, and returns it."""
        found: dict[str, Any] = {}

        def ready() -> bool:
            nonlocal found
            found = self.cluster.get("ba", name, "-n", namespace)
            return is_ready(found)

        self.wait(f"{namespace}/{name} is Ready", ready, timeout=timeout, show=lambda: found.get("status"))
        return found

    def wait_settled(self, name: str, namespace: str, *, timeout: float = 600) -> None:
        """Waits until it is Ready, every pod runs the newest revision and nothing is being created any more.

        A table that one replica has makes a shard Ready: the others may load it before the last one is created.
        """
        self.wait_ready(name, namespace, timeout=timeout)

        def settled() -> bool:
            found = self.cluster.get("ba", name, "-n", namespace)
            counts, conditions = found["status"]["replicas"], found["status"]["conditions"]
            under_way = any(
                (one["type"], one["status"]) == ("Reconciling", "True") or one["reason"] == "SchemaChanging"
                for one in conditions
            )
            return bool(is_ready(found) and not under_way and counts["updated"] == counts["ready"] == counts["desired"])

        self.wait(f"{namespace}/{name} has settled", settled, timeout=timeout)

    def wait_condition(
        self,
        name: str,
        namespace: str,
        condition: str,
        status: str,
        reason: str = "",
        *,
        kind: str = "ba",
        timeout: float = 300,
    ) -> dict[str, Any]:
        """Waits for a condition of an object, and returns it."""
        found: dict[str, Any] = {}

        def holds() -> bool:
            nonlocal found
            found = self.condition(kind, name, namespace, condition)
            return found.get("status") == status and reason in ("", found.get("reason"))

        what = f"{kind} {namespace}/{name} has {condition}={status} {reason}"
        self.wait(what, holds, timeout=timeout, show=lambda: found)
        return found

    def wait(
        self,
        what: str,
        condition: Callable[[], bool],
        *,
        timeout: float = 180,
        show: Callable[[], object] | None = None,
    ) -> None:
        """Waits until a condition holds; ClusterError with what did not, and what was seen last, when in vain."""

        def holds() -> bool:
            self.keep_alive()
            return condition()

        if not wait_until(holds, timeout=timeout, interval=0.3):
            seen = f"; last seen: {json.dumps(show(), indent=1)}" if show else ""
            raise ClusterError(f"not within {timeout:g} s: {what}{seen}")

    def refused(self, since: int, release: str = RELEASE) -> list[Request]:
        """What operators tried to do without having the right, since that mark: other scenarios take rights away."""
        return self.cluster.audit.refused(account_of(release), since=since)

    def writes(self, since: int = 0) -> list[Request]:
        """What operators wrote, renewals of leases not counted."""
        return self.cluster.audit.writes(account_of(RELEASE), since=since)

    def close(self) -> None:
        """What a pipeline leaves behind must not keep its namespace: ClusterError when it does."""
        try:
            if self._vanishing:
                gone = ("--for=delete", *(f"namespace/{name}" for name in self._vanishing), "--timeout=300s")
                self.cluster.kubectl("wait", *gone, timeout=330)
        finally:
            self.simulator.kill()
            self._ports.release()


@contextmanager
def open_site(folder: Path, given: GivenCluster | None = None, version: Version = OURS) -> Iterator[Site]:
    """A site with its simulator and the chart of a version. Its cluster is one of its own, unless one is given."""
    with ExitStack() as stack:
        surroundings = stack.enter_context(Surroundings(folder / "surroundings"))
        cluster: Access = given or stack.enter_context(Cluster(folder / "cluster"))
        site = Site(folder, cluster, surroundings)
        site.version = version
        try:
            site.install()
            site.simulator.start()
            yield site
        finally:
            site.close()


def last_words(server: Server) -> str:
    return "\n".join(server.log.read_text(errors="replace").splitlines()[-20:])


def account_of(release: str) -> str:
    """The user that the operators of a release are."""
    return f"system:serviceaccount:{SYSTEM}:{release}-operator"


def is_ready(found: dict[str, Any]) -> bool:
    """The resource's Ready is true and about its present generation."""
    status = found.get("status", {})
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return False
    conditions: list[dict[str, Any]] = status.get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
