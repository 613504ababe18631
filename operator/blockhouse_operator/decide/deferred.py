"""A step that is not taken now, and why: people hold it back, others are not well, a pod does not end. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse_operator.api import names
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.decide.seen import ReplicaSeen, ShardSeen

DEFERRED = frozenset({Reason.PAUSED, Reason.OUTSIDE_WINDOW})
"""Reasons of holds that people asked for: the operator is not at work, and need not look again soon."""

OVERDUE = 180.0
"""Seconds after its grace period until a pod is called stuck: a kubelet that restarts ends pods late."""


@dataclass(frozen=True, slots=True)
class RestartDeferred:
    """Nothing is restarted, removed or rebuilt now. `stalled`: and nothing will be until a person changes something."""

    reason: Reason
    why: str
    stalled: bool = False


def awaits_end(seen: ShardSeen, replica: ReplicaSeen | None, reason: Reason, why: str) -> RestartDeferred:
    """What is reported while the pod of `replica` ends: `why`, and when it is stuck, what a person has to do.

    The kubelet of a dead node never reports the end. Nothing is done about it here: whether a machine that does not
    answer is off is not seen from Kubernetes."""
    if replica is None or replica.pod is None or seen.overdue.get(replica.name, 0.0) <= OVERDUE:
        return RestartDeferred(reason, why)
    pod, node = names.pod(replica.name), replica.pod.node or "NODE"
    text = (
        f"{why}, and its pod {pod} should have ended by {replica.pod.ends_by}: node {node} does not report the end, or"
        " a finalizer keeps the pod; if the node does not answer, make sure that its machine is off, then kubectl"
        f" delete node {node}, or kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute,"
        f" or kubectl delete pod {pod} --force"
    )
    return RestartDeferred(Reason.POD_NOT_ENDING, text, stalled=True)
