"""`spec.template`: what a user adds to the objects that the operator makes. Nothing given is nothing changed.

A name that is ours (labels of selectors, containers, volumes, variables, paths) is refused, for what it would break
would show much later. The CRD refuses what CEL can judge at little cost; the rest is judged here.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from blockhouse_operator.api.affinity import Affinity, TopologySpread
from blockhouse_operator.api.base import ListMap, ObjectName, Part, Rule, listed
from blockhouse_operator.api.labels import GROUP
from blockhouse_operator.api.pod_containers import RESERVED_CONTAINERS, ContainerTemplate, PodSecurityContext, Sidecars
from blockhouse_operator.api.pod_volumes import DATA_VOLUME, Volumes, require_known, reserved_volume

OWN_PREFIXES = (f"{GROUP}/", "blockhouse.dev/")
OWN_LABELS = tuple(f"app.kubernetes.io/{name}" for name in ("component", "instance", "managed-by", "part-of"))
_KEY = re.compile(r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")
_NOT_OURS = Rule(
    f"self.all(key, !(key in [{listed(OWN_LABELS)}])"
    + "".join(f" && !key.startsWith('{prefix}')" for prefix in OWN_PREFIXES)
    + ")",
    f"taken: {', '.join(OWN_LABELS)}, and all that begin with {' or '.join(OWN_PREFIXES)}",
)
Labels = Annotated[
    dict[str, Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$", max_length=63)]],
    Field(max_length=32),
    _NOT_OURS,
]
"""Labels of an object."""
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=8192)]], Field(max_length=32), _NOT_OURS]
"""Annotations of an object."""


class Metadata(Part):
    """Labels and annotations, besides ours."""

    labels: Labels = {}
    """Labels."""
    annotations: Annotations = {}
    """Annotations."""

    @model_validator(mode="after")
    def _free(self) -> Self:
        for field in ("labels", "annotations"):
            for key in getattr(self, field):
                if key in OWN_LABELS or key.startswith(OWN_PREFIXES):
                    raise ValueError(f"{field}: {key} is taken by the operator")
                if not _KEY.match(key):
                    raise ValueError(f"{field}: {key}: expected a name, or PREFIX/NAME")
        return self


class ObjectTemplate(Part):
    """What an object has besides."""

    metadata: Metadata = Metadata()
    """Labels and annotations."""


class HostAlias(Part):
    """A line of `/etc/hosts`."""

    ip: Annotated[str, Field(pattern=r"^[0-9A-Fa-f:.]+$", max_length=45)]
    """Address."""
    hostnames: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(min_length=1, max_length=32)]
    """Names of it."""


class DnsOption(Part):
    """An option of a resolver."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Its name."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Its value."""


class DnsConfig(Part):
    """How names are resolved."""

    nameservers: Annotated[tuple[Annotated[str, Field(max_length=45)], ...], Field(max_length=3)] = ()
    """Addresses of servers."""
    searches: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=32)] = ()
    """Domains in which short names are looked for."""
    options: Annotated[tuple[DnsOption, ...], Field(max_length=16), ListMap()] = ()
    """Options, such as `ndots`."""


class PodTemplate(Part):
    """What pods have besides. That of the verifier has the same, without affinity, spread, grace period and sidecars,
    and of the volumes those that it mounts."""

    metadata: Metadata = Metadata()
    """Labels and annotations."""
    affinity: Affinity | None = None
    """Where replicas are placed, besides the `nodeSelector` of their zones."""
    topology_spread_constraints: Annotated[tuple[TopologySpread, ...], Field(max_length=8)] = ()
    """How evenly replicas are spread; in place of ours, which prefers a node each for the replicas of a shard."""
    priority_class_name: ObjectName | None = None
    """Priority class."""
    host_aliases: Annotated[tuple[HostAlias, ...], Field(max_length=32), ListMap("ip")] = ()
    """Lines of `/etc/hosts`."""
    dns_policy: Literal["ClusterFirst", "Default", "None"] | None = None
    """Whose name servers are asked."""
    dns_config: DnsConfig | None = None
    """How names are resolved."""
    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=86400)] | None = None
    """Time for a pod to end; less than the programs need is replaced by that."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When images are pulled; default Kubernetes' own."""
    enable_service_links: bool = False
    """Whether containers have variables for every Service of the namespace."""
    security_context: PodSecurityContext | None = None
    """In place of ours, and of `spec.security`; an empty one leaves it out, for an OpenShift that chooses the ids."""
    volumes: Volumes = ()
    """Volumes for mounts of the container templates and sidecars."""
    sidecars: Sidecars = ()
    """Containers beside ours."""

    @model_validator(mode="after")
    def _free(self) -> Self:
        if taken := [volume.name for volume in self.volumes if reserved_volume(volume.name)]:
            raise ValueError(f"volumes: {', '.join(taken)} is taken by the operator")
        if taken := [sidecar.name for sidecar in self.sidecars if sidecar.name in RESERVED_CONTAINERS]:
            raise ValueError(f"sidecars: {', '.join(taken)} is taken by the operator")
        known = {DATA_VOLUME, *(volume.name for volume in self.volumes)}
        for sidecar in self.sidecars:
            require_known(f"sidecars: {sidecar.name}", sidecar.volume_mounts, known)
        return self


class ServiceTemplate(ObjectTemplate):
    """What a Service has besides."""

    rules = (
        Rule(
            "!has(self.loadBalancerSourceRanges) || self.loadBalancerSourceRanges.size() == 0"
            " || (has(self.type) && self.type == 'LoadBalancer')",
            "loadBalancerSourceRanges needs type LoadBalancer",
        ),
    )

    type: Literal["ClusterIP", "LoadBalancer", "NodePort"] = "ClusterIP"
    """How it is reached from outside."""
    load_balancer_source_ranges: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[0-9A-Fa-f:.]+/[0-9]{1,3}$", max_length=64)], ...], Field(max_length=64)
    ] = ()
    """Networks from which a load balancer takes connections, where it knows how to."""

    @model_validator(mode="after")
    def _of_a_load_balancer(self) -> Self:
        if self.load_balancer_source_ranges and self.type != "LoadBalancer":
            raise ValueError("loadBalancerSourceRanges needs type LoadBalancer")
        return self


class ReplicaServiceTemplate(ServiceTemplate):
    """What the Service of a replica has besides."""

    type: Literal["ClusterIP", "LoadBalancer"] = "ClusterIP"
    """How it is reached from outside: peers connect to fixed ports, which a NodePort has not."""


class ShardTemplate(Part):
    """What a user adds to the objects of a shard."""

    pod: PodTemplate = PodTemplate()
    """The pods."""
    clickhouse_container: ContainerTemplate = ContainerTemplate()
    """The container of a managed ClickHouse."""
    aggregator_container: ContainerTemplate = ContainerTemplate()
    """The container of the aggregator."""
    query_service: ServiceTemplate = ServiceTemplate()
    """The Service of a shard, for queries. `{shard}` and `{namespace}` in annotations are replaced."""
    replica_service: ReplicaServiceTemplate = ReplicaServiceTemplate()
    """The Service of each replica, for its peers. `{replica}` and `{namespace}` in annotations are replaced."""
    pvc: ObjectTemplate = ObjectTemplate()
    """The volume claims of a managed ClickHouse."""

    @model_validator(mode="after")
    def _mounts_are_known(self) -> Self:
        known = {volume.name for volume in self.pod.volumes}
        for name, field in type(self).model_fields.items():
            container = getattr(self, name)
            if isinstance(container, ContainerTemplate):
                require_known(str(field.alias), container.volume_mounts, known)
        return self


class Template(ShardTemplate):
    """What a user adds to the objects that the operator makes. Changes of pods and containers replace the pods."""

    verifier_container: ContainerTemplate = ContainerTemplate()
    """The container of the verifier."""
    service_account: ObjectTemplate = ObjectTemplate()
    """The ServiceAccount of replicas. What reads its annotations, such as IRSA, does so when a pod is created."""
