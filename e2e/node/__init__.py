"""A real Kubernetes node on this machine: containerd, kubelet, kube-proxy and DNS in namespaces of their own.

Needs root and the packages of `scripts/setup node`. Everything inside dies with the namespaces' first process, pods
included, so nothing is left running however a test ends.
"""

from e2e.node.node import Node, NodeCluster

__all__ = ["Node", "NodeCluster"]
