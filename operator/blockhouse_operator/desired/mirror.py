"""Everything that a KafkaMirror needs in Kubernetes: one pod, what it reads, how it is reached.

Two drivers of one mirror must not run at once: the second takes the positions over, and the first ends. So the former
pod is gone before the next one is created (Recreate).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from blockhouse.tokens import read_only
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import KafkaMirror
from blockhouse_operator.desired import exposure, pod, settings, volumes
from blockhouse_operator.desired.manifest import Manifest, content_of, manifest, without_nothing
from blockhouse_operator.desired.spec_hash import digest
from blockhouse_operator.desired.template import add_metadata, add_to_service, affinity, extended, sidecars
from blockhouse_operator.desired.template import volumes as user_volumes

FILE = "mirror.yaml"
GRACE = 60
"""Seconds for a pod to end: what is in flight is acknowledged, positions are written, Spark stops."""
_IN_THE_POD = ("image", "resources", "security", "imagePullSecrets", "nodeSelector", "tolerations", "template")
_NOT_IN_THE_FILE = (*_IN_THE_POD, "networkPolicy", "suspend")
"""Parts of the spec that the program does not read: of these, changes of the first replace the pod by themselves."""


def children(mirror: KafkaMirror, secrets: str) -> tuple[Manifest, ...]:
    """The manifests of a mirror, in the order in which they are applied; its Secrets are apart (`token_secret`).
    `secrets`: `secrets_digest` of the Secrets that it mounts. Raises InvalidSpec where no configuration follows from
    the spec.
    """
    return tuple(_children(mirror, secrets))


def _children(mirror: KafkaMirror, secrets: str) -> Iterator[Manifest]:
    spec = mirror.spec
    account = _manifest(mirror, "ServiceAccount", automountServiceAccountToken=False)
    add_metadata(account, spec.template.service_account.metadata)
    yield account
    yield _manifest(mirror, "ConfigMap", data={FILE: settings.document(settings.mirror(mirror))})
    yield service(mirror)
    yield _disruption_budget(mirror)
    if spec.network_policy.enabled:
        yield _network_policy(mirror)
    yield deployment(mirror, secrets)


def token_secret(mirror: KafkaMirror, token: str) -> Manifest:
    """The Secret that the operator creates: the token of the admin API, from a source of true randomness."""
    return _manifest(mirror, "Secret", type="Opaque", data={"token": b64encode(token.encode()).decode()})


def read_secret(mirror: KafkaMirror, token: str) -> Manifest:
    """The Secret of the token that only reads, which follows from that of the admin API."""
    found = token_secret(mirror, read_only(token))
    found["metadata"]["name"] = names.mirror_read_secret(mirror.name)
    return found


def secrets_digest(token: str, contents: Mapping[str, str]) -> str:
    """Changes with any content (by name and key) of a Secret. Nothing can be guessed from it without the token, which
    is as secret as they are."""
    text = json.dumps(contents, sort_keys=True)
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()[:12]


def spec_hash(mirror: KafkaMirror) -> str:
    """Hash of the spec that the file is written from: the program reads it only once."""
    content = {key: value for key, value in content_of(mirror.spec).items() if key not in _NOT_IN_THE_FILE}
    return digest({"name": mirror.name, "spec": content})


def service(mirror: KafkaMirror) -> Manifest:
    """The address of the admin API and of the metrics, the driver ready or not."""
    found = exposure.service(
        names.mirror(mirror.name),
        mirror.namespace,
        [("admin", names.ADMIN_PORT)],
        labels=labels.of_mirror(mirror.name),
        selector=_selector(mirror),
        owner=mirror.reference(),
    )
    found["spec"]["publishNotReadyAddresses"] = True
    add_to_service(found, mirror.spec.template.service, namespace=mirror.namespace)
    return found


def deployment(mirror: KafkaMirror, secrets: str) -> Manifest:
    """One pod, or none while the mirror is suspended."""
    return _manifest(
        mirror,
        "Deployment",
        api_version="apps/v1",
        spec={
            "replicas": 0 if mirror.spec.suspend else 1,
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": _selector(mirror)},
            "template": _template(mirror, secrets),
        },
    )


def _template(mirror: KafkaMirror, secrets: str) -> dict[str, Any]:
    spec, added = mirror.spec, mirror.spec.template.pod
    found: dict[str, Any] = {
        "metadata": {
            "labels": labels.of_mirror(mirror.name),
            "annotations": {labels.SPEC_HASH: spec_hash(mirror), labels.SECRETS: secrets},
        },
        "spec": {
            **pod.common(spec.security, names.mirror(mirror.name), spec.image_pull_secrets, added),
            "terminationGracePeriodSeconds": max(GRACE, added.termination_grace_period_seconds or 0),
            **without_nothing(
                nodeSelector=dict(spec.node_selector),
                tolerations=[content_of(toleration) for toleration in spec.tolerations],
                affinity=affinity(added.affinity, _selector(mirror)),
                topologySpreadConstraints=[
                    {"labelSelector": {"matchLabels": _selector(mirror)}, **content_of(constraint)}
                    for constraint in added.topology_spread_constraints
                ],
                initContainers=sidecars(added),
            ),
            "containers": [extended(_container(mirror), spec.template.container, added)],
            "volumes": [*_volumes(mirror), *user_volumes(added)],
        },
    }
    add_metadata(found, added.metadata)
    return found


def _container(mirror: KafkaMirror) -> dict[str, Any]:
    return pod.container(
        names.MIRROR,
        mirror.spec.image,
        mirror.spec.resources,
        # The image may be older than this operator.
        args=["mirror", "run", "--ignore-unknown", "--config", f"{volumes.CONFIG}/{FILE}"],
        env=pod.spark_env(),
        ports=[{"name": "admin", "containerPort": names.ADMIN_PORT}],
        startupProbe=pod.admin_probe("/healthz", 2, pod.START_FAILURES, mirror.spec.admin_tls),
        readinessProbe=pod.admin_probe("/readyz", 5, 3, mirror.spec.admin_tls),
        livenessProbe=pod.admin_probe("/healthz", 10, 6, mirror.spec.admin_tls),
        volumeMounts=[
            {"name": "config", "mountPath": volumes.CONFIG, "readOnly": True},
            volumes.internal_mount(),
            {"name": "tmp", "mountPath": "/tmp"},
            *(login.mount() for login in _logins(mirror)),
        ],
    )


def _volumes(mirror: KafkaMirror) -> list[dict[str, Any]]:
    name = names.mirror(mirror.name)
    return [
        {"name": "config", "configMap": {"name": name}},
        volumes.internal_volume(name),
        # Spark's and Java's own files; not memory, which would count against the container's limit.
        {"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}},
        *(login.volume() for login in _logins(mirror)),
    ]


def _logins(mirror: KafkaMirror) -> list[volumes.Login]:
    logins = [volumes.kafka_login(cluster) for cluster in (mirror.spec.source, mirror.spec.target)]
    logins.append(volumes.admin_certificate(mirror.spec.admin_tls))
    return [login for login in logins if login.sources]


def _disruption_budget(mirror: KafkaMirror) -> Manifest:
    """A node can always be emptied: a driver that is ended in order costs no more than the start of the next one."""
    return _manifest(
        mirror,
        "PodDisruptionBudget",
        api_version="policy/v1",
        spec={
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": _selector(mirror)},
        },
    )


def _network_policy(mirror: KafkaMirror) -> Manifest:
    """The admin API and the ports of sidecars from pods, and nothing else: tasks run in the driver's own pod."""
    ports = [{"protocol": "TCP", "port": names.ADMIN_PORT}]
    for sidecar in mirror.spec.template.pod.sidecars:
        ports += [{"protocol": port.protocol, "port": port.container_port} for port in sidecar.ports]
    return _manifest(
        mirror,
        "NetworkPolicy",
        api_version="networking.k8s.io/v1",
        spec={
            "podSelector": {"matchLabels": _selector(mirror)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"namespaceSelector": {}}], "ports": ports}],
        },
    )


def _manifest(mirror: KafkaMirror, kind: str, **content: Any) -> Manifest:
    own = labels.of_mirror(mirror.name)
    return manifest(kind, names.mirror(mirror.name), mirror.namespace, labels=own, owner=mirror.reference(), **content)


def _selector(mirror: KafkaMirror) -> dict[str, str]:
    return {labels.MIRROR: mirror.name, labels.COMPONENT: names.MIRROR}
