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


def awaits_end(seen: ShardSeen, replica: ReplicaSeen, reason: Reason, why: str) -> RestartDeferred:
    """What is reported while the pod of `replica` ends: `why`, and when it is stuck, what a person has to do."""
    return not_ending(seen, replica.name, why) or RestartDeferred(reason, why)


def not_ending(seen: ShardSeen, name: str, why: str) -> RestartDeferred | None:
    """What a person has to do about the pod of a replica that should have ended long ago; None where there is none, as
    for a replica of another zone.

    The kubelet of a dead node never reports the end. Nothing is done about it here: whether a machine that does not
    answer is off is not seen from Kubernetes."""
    found = next((replica.pod for replica in (*seen.replicas, *seen.surplus) if replica.name == name), None)
    if found is None or seen.overdue.get(name, 0.0) <= OVERDUE:
        return None
    pod, node = names.pod(name), found.node or "NODE"
    text = (
        f"{why}, and its pod {pod} should have ended by {found.ends_by}: node {node} does not report the end, or"
        " a finalizer keeps the pod; if the node does not answer, make sure that its machine is off, then kubectl"
        f" delete node {node}, or kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute,"
        f" or kubectl delete pod {pod} --force"
    )
    return RestartDeferred(Reason.POD_NOT_ENDING, text, stalled=True)
