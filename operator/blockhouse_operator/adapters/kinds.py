"""The kinds of objects the operator touches, and where the API server keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Object = Mapping[str, Any]
"""An object as the API server gives it: parsed JSON."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object of the Kubernetes API; `plural` is its name in paths."""

    api_version: str
    name: str
    plural: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """The path of an object or one of its subresources, or of the collection; `namespace` None is all, or none."""
        root = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        within = f"/namespaces/{namespace}" if namespace else ""
        return "/".join(filter(None, (f"{root}{within}/{self.plural}", name, subresource)))


class Address(NamedTuple):
    """Where an object is, or one of its subresources; without a name a whole collection."""

    kind: Kind
    namespace: str
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        return self.kind.path(self.namespace, self.name, self.subresource)


GROUP_VERSION = "ingest.blockhouse.dev/v1alpha1"
BLOCK_AGGREGATOR = Kind(GROUP_VERSION, "BlockAggregator", "blockaggregators")
SHARD_INGEST = Kind(GROUP_VERSION, "ClickHouseShardIngest", "clickhouseshardingests")
KAFKA_REASSIGNMENT = Kind(GROUP_VERSION, "KafkaReassignment", "kafkareassignments")
KAFKA_MIRROR = Kind(GROUP_VERSION, "KafkaMirror", "kafkamirrors")
POD = Kind("v1", "Pod", "pods")
NODE = Kind("v1", "Node", "nodes")
SECRET = Kind("v1", "Secret", "secrets")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
VOLUME_CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENT = Kind("v1", "Event", "events")
STATEFUL_SET = Kind("apps/v1", "StatefulSet", "statefulsets")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")

CHILDREN = (
    SHARD_INGEST,
    SERVICE_ACCOUNT,
    CONFIG_MAP,
    SERVICE,
    VOLUME_CLAIM,
    STATEFUL_SET,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SECRET,
)
"""What the operator may create, in the order in which it is created."""

_BY_NAME = {
    (kind.api_version, kind.name): kind
    for kind in (BLOCK_AGGREGATOR, KAFKA_REASSIGNMENT, KAFKA_MIRROR, POD, EVENT, LEASE, *CHILDREN)
}


def address_of(live: Object, subresource: str = "") -> Address:
    """Of an object that is there. Raises KeyError as `kind_of`."""
    return Address(kind_of(live), live["metadata"]["namespace"], live["metadata"]["name"], subresource)


def kind_of(manifest: Object) -> Kind:
    """Raises KeyError for a kind that the operator has no business with."""
    return _BY_NAME[manifest["apiVersion"], manifest["kind"]]
