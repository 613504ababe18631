"""The programs of a control plane, each as a server that is started, killed and frozen like those of `e2e/stack`."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import ClassVar

from e2e.cluster.audit import POLICY
from e2e.cluster.binaries import Binaries
from e2e.cluster.pki import Authority
from e2e.stack.server import Server

SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
FAKE_POD_NETWORK = "198.18.0.0/15"
LOOPBACK = "127.0.0.1"


class Program(Server):
    """One program of the control plane. It answers when its health page reports it healthy."""

    program: ClassVar[str]
    # Garbage is collected less often than by default: processor time is scarcer here than memory.
    environment: ClassVar[dict[str, str]] = {"NO_PROXY": "*", "no_proxy": "*", "GOGC": "400"}

    def __init__(
        self, folder: Path, binaries: Binaries, authority: Authority, port: int, *, dies_with_parent: bool
    ) -> None:
        super().__init__(self.program, folder / self.program, dies_with_parent=dies_with_parent)
        self.binaries = binaries
        self.authority = authority
        self.port = port

    @property
    def health(self) -> str:
        return f"https://{LOOPBACK}:{self.port}/healthz"

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.health, timeout=2, context=self._tls()) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _tls(self) -> ssl.SSLContext | None:
        """None for a health page without TLS. Their own certificates are generated at each start: not checked."""
        if not self.health.startswith("https"):
            return None
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


class Etcd(Program):
    """Keeps nothing safe from a power cut (`--unsafe-no-fsync`): the cluster ends with its test."""

    program = "etcd"

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        authority: Authority,
        port: int,
        peer_port: int,
        *,
        dies_with_parent: bool,
    ) -> None:
        super().__init__(folder, binaries, authority, port, dies_with_parent=dies_with_parent)
        self.peer_port = peer_port

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def health(self) -> str:
        return f"{self.url}/health"

    def prepare(self) -> list[str]:
        peer = f"http://{LOOPBACK}:{self.peer_port}"
        return [
            self.binaries["etcd"],
            "--name=test",
            f"--data-dir={self.folder / 'data'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--quota-backend-bytes=4294967296",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=test={peer}",
        ]


class ApiServer(Program):
    """Node and RBAC authorization, tokens of service accounts, an audit log: what a production cluster has."""

    program = "kube-apiserver"

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        authority: Authority,
        port: int,
        *,
        etcd: Etcd,
        address: str,
        audit: bool,
        dies_with_parent: bool,
    ) -> None:
        super().__init__(folder, binaries, authority, port, dies_with_parent=dies_with_parent)
        self.etcd = etcd
        self.address = address
        self.audit = audit

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def health(self) -> str:
        return f"{self.url}/readyz"

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def answers(self) -> bool:
        # Not even health is reported to strangers: anonymous requests are switched off.
        return super().answers()

    def _tls(self) -> ssl.SSLContext:
        certificate, key = self.authority.issue("admin", "/O=system:masters/CN=admin")
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.load_cert_chain(certificate, key)
        return context

    def prepare(self) -> list[str]:
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        hosts = [f"DNS:{name}" for name in names] + [f"IP:{ip}" for ip in {LOOPBACK, API_SERVICE, self.address}]
        certificate, key = self.authority.issue("apiserver", "/CN=kube-apiserver", hosts)
        kubelet = self.authority.issue("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        return [
            self.binaries["kube-apiserver"],
            f"--etcd-servers={self.etcd.url}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            # A loopback address is no endpoint; the kubernetes Service then has none, and needs none.
            f"--endpoint-reconciler-type={'none' if self.address == LOOPBACK else 'lease'}",
            f"--secure-port={self.port}",
            f"--client-ca-file={self.authority.certificate}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={kubelet[0]}",
            f"--kubelet-client-key={kubelet[1]}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.authority.token_public_key}",
            f"--service-account-signing-key-file={self.authority.token_key}",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--allow-privileged",
            "--anonymous-auth=false",
            "--max-requests-inflight=800",
            "--max-mutating-requests-inflight=400",
            *self._audit_flags(),
        ]

    def _audit_flags(self) -> list[str]:
        if not self.audit:
            return []
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(POLICY)
        # It is read from an offset on, so it must not be rotated. The size is in MB; 0 means the logger's default, 100.
        log = (f"--audit-log-path={self.audit_log}", "--audit-log-maxsize=1000000")
        return [f"--audit-policy-file={policy}", *log]


class ApiClient(Program):
    """A program that talks to the API server as `subject` (of its certificate)."""

    subject: ClassVar[str]

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        authority: Authority,
        port: int,
        *,
        api: ApiServer,
        dies_with_parent: bool,
    ) -> None:
        super().__init__(folder, binaries, authority, port, dies_with_parent=dies_with_parent)
        self.api = api

    def kubeconfig(self) -> Path:
        """Its way to the API server, written again at each call."""
        identity = self.authority.issue(self.program.removeprefix("kube-"), self.subject)
        return self.authority.kubeconfig(self.folder / "kubeconfig", self.api.url, identity=identity)


class ControllerManager(ApiClient):
    """Quick about StatefulSets and garbage, so that a test of hundreds of pods measures us, not it. EndpointSlices are
    written once for what changes within a second, and not a second time as Endpoints, which nothing here reads: at
    each change these controllers compare all Services of its namespace."""

    program = "kube-controller-manager"
    subject = "/CN=system:kube-controller-manager"

    def prepare(self) -> list[str]:
        kubeconfig = self.kubeconfig()
        return [
            self.binaries["kube-controller-manager"],
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.port}",
            f"--service-account-private-key-file={self.authority.token_key}",
            f"--root-ca-file={self.authority.certificate}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--concurrent-statefulset-syncs=20",
            "--controllers=*,-endpoints-controller,-endpointslice-mirroring-controller",
            "--endpointslice-updates-batch-period=1s",
            # Of a fake node that was late once, on a busy machine, KWOK never marks the pods ready again.
            "--node-monitor-grace-period=1h",
        ]


class Scheduler(ApiClient):
    program = "kube-scheduler"
    subject = "/CN=system:kube-scheduler"

    def prepare(self) -> list[str]:
        kubeconfig = self.kubeconfig()
        return [
            self.binaries["kube-scheduler"],
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.port}",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]


class Kwok(ApiClient):
    """Plays the kubelet of every node with KWOK's annotation: pods become ready at once, and nothing runs in them.

    Pods have addresses at which no process listens (RFC 2544): those of loopback are refused in endpoints.
    """

    program = "kwok"
    subject = "/O=system:masters/CN=kwok"

    @property
    def health(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/healthz"

    def prepare(self) -> list[str]:
        kubeconfig = self.kubeconfig()
        return [
            self.binaries["kwok"],
            f"--kubeconfig={kubeconfig}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            # Without leases no fake node outlives the node controller's grace period.
            "--node-lease-duration-seconds=40",
            f"--node-ip={LOOPBACK}",
            f"--cidr={FAKE_POD_NETWORK}",
            f"--server-address={LOOPBACK}:{self.port}",
        ]
