"""What `spec.template` adds to manifests. An empty template changes none of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blockhouse_operator.api.affinity import Affinity, TopologySpread
from blockhouse_operator.api.parts import PodSecurity
from blockhouse_operator.api.pod_containers import ContainerTemplate, Sidecar
from blockhouse_operator.api.template import Metadata, PodTemplate, ServiceTemplate
from blockhouse_operator.desired.manifest import Manifest, content_of, without_nothing

RESTRICTED: dict[str, Any] = {
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""Security context of a container whose template has none."""


def add_metadata(found: Manifest, added: Metadata, **places: str) -> None:
    """Labels and annotations, `{name}` in annotations replaced by `places`. What the operator itself sets prevails."""
    meta = found["metadata"]
    meta["labels"] = {**added.labels, **meta["labels"]}
    annotations = {key: _filled(text, places) for key, text in added.annotations.items()}
    if annotations:
        meta["annotations"] = {**annotations, **meta.get("annotations", {})}


def _filled(text: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def add_to_service(found: Manifest, template: ServiceTemplate, **places: str) -> None:
    """Metadata, type, and who may come through a load balancer."""
    add_metadata(found, template.metadata, **places)
    found["spec"]["type"] = template.type
    found["spec"] |= without_nothing(loadBalancerSourceRanges=list(template.load_balancer_source_ranges))


def pod_fields(template: PodTemplate, security: PodSecurity) -> dict[str, Any]:
    """Fields of every pod: who it runs as, its names and variables, its priority."""
    context = {
        "runAsNonRoot": True,
        "runAsUser": security.run_as_user,
        "runAsGroup": security.run_as_group,
        "fsGroup": security.fs_group,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if template.security_context is not None:
        context = content_of(template.security_context)
    return {
        "enableServiceLinks": template.enable_service_links,
        **without_nothing(
            securityContext=context,
            priorityClassName=template.priority_class_name,
            hostAliases=[content_of(alias) for alias in template.host_aliases],
            dnsPolicy=template.dns_policy,
            dnsConfig=content_of(template.dns_config) if template.dns_config else None,
        ),
    }


def extended(container: dict[str, Any], own: ContainerTemplate, template: PodTemplate) -> dict[str, Any]:
    """A container of ours with what its template adds."""
    added = without_nothing(
        env=[*container.get("env", []), *(content_of(variable) for variable in own.env)],
        volumeMounts=[*container.get("volumeMounts", []), *(content_of(mount) for mount in own.volume_mounts)],
        imagePullPolicy=template.image_pull_policy,
    )
    return _secured({**container, **added}, own)


def sidecars(template: PodTemplate) -> list[dict[str, Any]]:
    """The user's containers, started before ours and ended after them."""
    return [
        _secured(
            {
                **content_of(sidecar),
                "restartPolicy": "Always",
                "securityContext": RESTRICTED,
                **without_nothing(imagePullPolicy=template.image_pull_policy),
            },
            sidecar,
        )
        for sidecar in template.sidecars
    ]


def _secured(container: dict[str, Any], own: ContainerTemplate | Sidecar) -> dict[str, Any]:
    if own.security_context is None:
        return container
    kept = {key: value for key, value in container.items() if key != "securityContext"}
    return {**kept, **without_nothing(securityContext=content_of(own.security_context))}


def volumes(template: PodTemplate) -> list[dict[str, Any]]:
    """The user's volumes."""
    return [content_of(volume) for volume in template.volumes]


def affinity(given: Affinity | None, mine: Mapping[str, str]) -> dict[str, Any]:
    """Where a pod is placed; terms about pods without a selector are about those with the labels `mine`."""
    found = content_of(given) if given is not None else {}
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = found.get(kind, {})
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution", [])
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        for term in (*required, *(item["podAffinityTerm"] for item in preferred)):
            term.setdefault("labelSelector", {"matchLabels": dict(mine)})
    return found


def spread(given: tuple[TopologySpread, ...], mine: Mapping[str, str]) -> list[dict[str, Any]]:
    """How evenly pods are spread; by default two replicas of a shard, with the labels `mine`, are on two nodes where
    there are two: on one they would be lost together."""
    selector = {"labelSelector": {"matchLabels": dict(mine)}}
    if not given:
        return [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", **selector}
        ]
    return [{**selector, **content_of(constraint)} for constraint in given]
