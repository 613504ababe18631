"""A real Kubernetes on this machine for tests and people: never imported by the product.

The programs come from `scripts/cluster-binaries`, which prints their folder (`~/.cache/blockhouse/k8s-VERSION`): there
are `kubectl` and `helm`, too. Nodes are KWOK's, so nothing runs in the pods; `e2e/node` has a real one.
"""

from e2e.cluster.access import Access
from e2e.cluster.audit import AuditLog, Request
from e2e.cluster.binaries import Binaries
from e2e.cluster.cluster import Cluster
from e2e.cluster.given import GivenCluster
from e2e.cluster.spec import ClusterError, ClusterSpec, Zone

__all__ = [
    "Access",
    "AuditLog",
    "Binaries",
    "Cluster",
    "ClusterError",
    "ClusterSpec",
    "GivenCluster",
    "Request",
    "Zone",
]
