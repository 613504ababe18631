"""The cluster: a control plane and KWOK's nodes in one folder, up and down together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster.access import Access
from e2e.cluster.audit import AuditLog
from e2e.cluster.binaries import Binaries
from e2e.cluster.nodes import fake_nodes
from e2e.cluster.pki import Authority
from e2e.cluster.programs import ApiServer, ControllerManager, Etcd, Kwok, Scheduler
from e2e.cluster.spec import ClusterError, ClusterSpec
from e2e.cluster.volumes import STORAGE_CLASS, VolumeProvisioner
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.server import Server
from e2e.stack.stage import Stage

Progress = Callable[[Server], None]

STATE = "cluster.json"

DEFAULTS_TIMEOUT = 180.0
"""Seconds until the controller manager has made a new namespace's service account."""


class Cluster(Access, Stage):
    """A Kubernetes of our own. As a context manager it leaves no process, and no data unless `keep`.

    In a folder that holds a cluster already its ports and data are used again. Programs of a `detached` one outlive
    this process; others are killed with it. ClusterError when the programs are not built.
    """

    def __init__(
        self, folder: Path, spec: ClusterSpec | None = None, *, keep: bool = False, detached: bool = False
    ) -> None:
        self.folder = folder.absolute()
        recorded = read_state(self.folder)
        if recorded and spec is not None and recorded[0] != spec:
            raise ClusterError(
                f"{self.folder} holds another cluster: `blockhouse cluster down --folder {folder}` first, "
                "or use another folder"
            )
        self.spec, known_ports = recorded or (spec or ClusterSpec(), {})
        self.keep = keep
        self.binaries: Binaries = Binaries.find()
        self.authority = Authority(self.folder / "pki")
        self._ports = Ports(known_ports)
        self._dies_with_parent = not detached
        self._control_plane()
        self.volumes = VolumeProvisioner(self.folder, kubeconfig=self.kubeconfig, dies_with_parent=not detached)
        self.servers: dict[str, Server] = {
            server.name: server
            for server in (self.etcd, self.api, self.controllers, self.scheduler, self.volumes, self.kwok)
            if server is not None
        }

    @classmethod
    def attach(cls, folder: Path) -> Cluster:
        """The cluster that was started in `folder`, by whomever. ClusterError when there is none."""
        if read_state(folder.absolute()) is None:
            raise ClusterError(
                f"there is no cluster in {folder}: start one with `blockhouse cluster up --folder {folder}`"
            )
        return cls(folder, keep=True, detached=True)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; it exists once the cluster was started."""
        return self.folder / "admin.kubeconfig"

    @property
    def audit(self) -> AuditLog:
        """Every request since the cluster was created; ClusterError when the spec switched it off."""
        if not self.spec.audit:
            raise ClusterError("this cluster writes no audit log: ClusterSpec(audit=True)")
        return AuditLog(self.api.audit_log)

    def start(self, progress: Progress | None = None) -> None:
        """Starts every program that does not run and waits until pods can be scheduled. StackError names a dead one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authority.create()
        admin = self.authority.issue("admin", "/O=system:masters/CN=admin")
        self.authority.kubeconfig(self.kubeconfig, self.api.url, identity=admin)
        self._ports.hold()
        write_state(self.folder, self.spec, self._ports.as_dict())

        def start(server: Server) -> None:
            server.start()
            if progress:
                progress(server)

        for server in (self.etcd, self.api):
            start(server)
        with ThreadPoolExecutor() as pool:
            rest = [pool.submit(start, s) for s in self.servers.values() if s not in (self.etcd, self.api)]
            for future in rest:
                future.result()
        self._await_defaults()
        self.apply([*fake_nodes(self.spec.zones), STORAGE_CLASS])

    def kubeconfig_of(self, service_account: str, namespace: str, path: Path) -> Path:
        """Writes a kubeconfig with which one is the service account, and nothing more."""
        return self.authority.kubeconfig(path, self.api.url, token=self.token_of(service_account, namespace))

    def stop(self) -> None:
        """Ends every program in order; the data and the ports stay."""
        for server in reversed(self.servers.values()):
            server.stop()

    def close(self) -> None:
        """Ends everything; without `keep` at once and with all the data."""
        for server in reversed(self.servers.values()):
            if self.keep:
                server.stop()
            else:
                server.kill()
        self._ports.release()
        if not self.keep:
            self.delete()

    def delete(self) -> None:
        """Removes what the cluster wrote, and the folder if that leaves it empty. The programs must be stopped."""
        for folder in (self.authority.folder, *(server.folder for server in self.servers.values())):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.kubeconfig, self.folder / STATE):
            file.unlink(missing_ok=True)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _control_plane(self) -> None:
        ports, lives = self._ports, self._dies_with_parent
        place = (self.folder, self.binaries, self.authority)
        self.etcd = Etcd(*place, ports["etcd"], ports["etcd.peer"], dies_with_parent=lives)
        self.api = ApiServer(
            *place,
            ports["api"],
            etcd=self.etcd,
            address=self.spec.address,
            audit=self.spec.audit,
            dies_with_parent=lives,
        )
        self.controllers = ControllerManager(*place, ports["controllers"], api=self.api, dies_with_parent=lives)
        self.scheduler = Scheduler(*place, ports["scheduler"], api=self.api, dies_with_parent=lives)
        self.kwok = (
            Kwok(*place, ports["kwok"], api=self.api, dies_with_parent=lives)
            if any(zone.nodes for zone in self.spec.zones)
            else None
        )

    def _await_defaults(self) -> None:
        def ready() -> bool:
            try:
                self.kubectl("get", "serviceaccount", "default", "-n", "default")
            except ClusterError:
                return False
            return True

        if not wait_until(ready, timeout=DEFAULTS_TIMEOUT, interval=0.3):
            raise ClusterError(f"no default service account after {DEFAULTS_TIMEOUT:g} s: see {self.controllers.log}")


def write_state(folder: Path, spec: ClusterSpec, ports: dict[str, int]) -> None:
    """Records shape and ports, before anything starts and all at once."""
    new = folder / f"{STATE}.new"
    new.write_text(json.dumps({"spec": spec.to_json(), "ports": ports}, indent=2) + "\n")
    new.replace(folder / STATE)


def read_state(folder: Path) -> tuple[ClusterSpec, dict[str, int]] | None:
    """Spec and ports of the cluster in `folder`, None without one; ClusterError when the record is unreadable."""
    path = folder / STATE
    try:
        state = json.loads(path.read_text())
        return ClusterSpec.from_json(state["spec"]), {str(k): int(v) for k, v in state["ports"].items()}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ClusterError(f"{path} is not readable ({error}): remove {folder}, or use another folder") from error
