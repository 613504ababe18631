"""Every field of `spec.template`, with values that an API server with PodSecurity `restricted` accepts. Pure."""

from __future__ import annotations

from typing import Any

_SECURITY = {
    "runAsUser": 10002,
    "runAsGroup": 10002,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/ours.json"},
    "seLinuxOptions": {"level": "s0:c1,c2", "type": "container_t"},
}
_OF_CONTAINER = {
    **_SECURITY,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
_ENV = [
    {"name": "PLAIN", "value": "text"},
    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "extra", "key": "word", "optional": True}}},
    {"name": "SETTING", "valueFrom": {"configMapKeyRef": {"name": "extra", "key": "word", "optional": True}}},
    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
]
_MOUNTS = [{"name": "authorities", "mountPath": "/opt/authorities", "subPath": "ours", "readOnly": True}]
_CONTAINER = {"env": _ENV, "volumeMounts": _MOUNTS, "securityContext": _OF_CONTAINER}
_METADATA = {"labels": {"team": "ingest"}, "annotations": {"example.net/cost-centre": "4711"}}
_SELECTOR = {
    "matchLabels": {"app": "noisy"},
    "matchExpressions": [{"key": "app", "operator": "In", "values": ["noisy"]}],
}
_ANY = {"matchExpressions": [{"key": "unknown", "operator": "DoesNotExist", "values": []}]}
_BESIDE = {  # the pods themselves, or the first one would wait
    "topologyKey": "kubernetes.io/os",
    "labelSelector": {"matchLabels": {"team": "ingest"}, **_ANY},
    "namespaces": ["noisy"],
    "namespaceSelector": _ANY,
}
_NOT_BESIDE = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": _SELECTOR,
    "namespaces": ["noisy"],
    "namespaceSelector": _SELECTOR,
}
_NODES = {
    "matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["broken"]}],
}
_REQUIRED, _PREFERRED = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))


def of_pods() -> dict[str, Any]:
    """Fields by path whose change replaces every pod."""
    pod = {
        "metadata": _METADATA,
        "affinity": _affinity(),
        "topologySpreadConstraints": [_spread()],
        "priorityClassName": "system-cluster-critical",
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["legacy.example.net"]}],
        "dnsPolicy": "Default",
        "dnsConfig": {
            "nameservers": ["192.0.2.53"],
            "searches": ["example.net"],
            "options": [{"name": "ndots", "value": "2"}],
        },
        "terminationGracePeriodSeconds": 600,
        "imagePullPolicy": "IfNotPresent",
        "enableServiceLinks": True,
        "securityContext": {
            **_SECURITY,
            "fsGroup": 10002,
            "fsGroupChangePolicy": "Always",
            "supplementalGroups": [10003],
        },
        "volumes": _volumes(),
        "sidecars": [_sidecar()],
    }
    return {
        "template__pod": pod,
        "template__clickhouseContainer": _CONTAINER,
        "template__aggregatorContainer": _CONTAINER,
    }


def _affinity() -> dict[str, Any]:
    return {
        "nodeAffinity": {
            _REQUIRED: {"nodeSelectorTerms": [_NODES]},
            _PREFERRED: [{"weight": 1, "preference": _NODES}],
        },
        "podAffinity": {
            _REQUIRED: [_BESIDE],
            _PREFERRED: [{"weight": 1, "podAffinityTerm": _NOT_BESIDE}],
        },
        "podAntiAffinity": {
            _REQUIRED: [_NOT_BESIDE],
            _PREFERRED: [{"weight": 1, "podAffinityTerm": _NOT_BESIDE}],
        },
    }


def _spread() -> dict[str, Any]:
    return {
        "maxSkew": 2,
        "topologyKey": "kubernetes.io/os",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _SELECTOR,
        "minDomains": 1,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
    }


def _volumes() -> list[dict[str, Any]]:
    files = {"items": [{"key": "ca.crt", "path": "ours/ca.crt", "mode": 288}], "defaultMode": 288, "optional": True}
    return [
        {"name": "authorities", "configMap": {"name": "extra", **files}},
        {"name": "login", "secret": {"secretName": "extra", **files}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi", "medium": "Memory"}},
    ]


def _sidecar() -> dict[str, Any]:
    return {
        "name": "proxy",
        "image": "example/proxy:1",
        "command": ["/proxy"],
        "args": ["--port=15001"],
        "env": _ENV,
        "ports": [{"name": "metrics", "containerPort": 15001, "protocol": "UDP"}],
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": _MOUNTS,
        "securityContext": _OF_CONTAINER,
    }


def of_no_pod() -> dict[str, Any]:
    """Fields by path that are applied without a restart."""
    service = {"metadata": _METADATA, "type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"]}
    return {
        "template__queryService": service,
        "template__replicaService": service,
        "template__pvc": {"metadata": _METADATA},
        "template__serviceAccount": {"metadata": _METADATA},
    }


def of_the_verifier() -> dict[str, Any]:
    """What the pod of the verifier has besides."""
    return {"template__verifierContainer": _CONTAINER}
