"""Where pods are placed beside each other and on which nodes: Kubernetes' own fields, with one meaning added.

A selector of pods that is left out means the replicas of the same shard: no one could write it otherwise, since the
number of the shard is in it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from blockhouse_operator.api.base import LabelMap, ObjectName, Part

LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
"""Key of a label: a prefix of 253 characters, `/`, a name of 63."""
Values = Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=64)]
"""Values of a label."""
Weight = Annotated[int, Field(ge=1, le=100)]
"""How much a preference counts."""


class LabelExpression(Part):
    """A demand on a label."""

    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How its value is compared."""
    values: Values = ()
    """Values, for `In` and `NotIn`."""


class LabelSelector(Part):
    """Objects by their labels. An empty one selects all."""

    match_labels: LabelMap = {}
    """Labels that they have."""
    match_expressions: Annotated[tuple[LabelExpression, ...], Field(max_length=16)] = ()
    """Further demands on their labels."""


class NodeExpression(Part):
    """A demand on a label or a field of a node."""

    key: LabelKey
    """Key of the label, or path of the field."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How its value is compared."""
    values: Values = ()
    """Values; one for `Gt` and `Lt`."""


class NodeTerm(Part):
    """Nodes that meet all of these."""

    match_expressions: Annotated[tuple[NodeExpression, ...], Field(max_length=16)] = ()
    """Demands on labels."""
    match_fields: Annotated[tuple[NodeExpression, ...], Field(max_length=16)] = ()
    """Demands on fields, such as `metadata.name`."""


class NodeSelector(Part):
    """Nodes that meet one of the terms."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], Field(min_length=1, max_length=16)]
    """The terms."""


class PreferredNodes(Part):
    """Nodes that are better than others."""

    weight: Weight
    """How much it counts."""
    preference: NodeTerm
    """The nodes."""


class NodeAffinity(Part):
    """Which nodes, besides the `nodeSelector` of the zone."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes without which a pod is not scheduled."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredNodes, ...], Field(max_length=16)
    ] = ()
    """Nodes that are preferred."""


class PodTerm(Part):
    """Pods in one domain of the topology."""

    topology_key: LabelKey
    """Label of nodes that makes the domains, such as `kubernetes.io/hostname`."""
    label_selector: LabelSelector | None = None
    """The pods; without it the replicas of the same shard."""
    namespaces: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()
    """Their namespaces; default the pipeline's."""
    namespace_selector: LabelSelector | None = None
    """Their namespaces, by labels."""


class PreferredPods(Part):
    """Pods that it is better to be beside, or not to be beside."""

    weight: Weight
    """How much it counts."""
    pod_affinity_term: PodTerm
    """The pods."""


class PodAffinity(Part):
    """Beside which pods, or beside which not."""

    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodTerm, ...], Field(max_length=16)] = ()
    """What a pod is not scheduled without."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredPods, ...], Field(max_length=16)
    ] = ()
    """What is preferred."""


class Affinity(Part):
    """As in a pod."""

    node_affinity: NodeAffinity | None = None
    """Which nodes."""
    pod_affinity: PodAffinity | None = None
    """Beside which pods."""
    pod_anti_affinity: PodAffinity | None = None
    """Not beside which pods."""


class TopologySpread(Part):
    """How evenly pods are spread over the domains of a topology."""

    max_skew: Annotated[int, Field(ge=1, le=256)]
    """Pods by which two domains may differ."""
    topology_key: LabelKey
    """Label of nodes that makes the domains."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """Whether a pod waits rather than to break it."""
    label_selector: LabelSelector | None = None
    """Which pods count; without it the replicas of the same shard."""
    min_domains: Annotated[int, Field(ge=1, le=256)] | None = None
    """Domains there must be, for `DoNotSchedule`."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """Whether only nodes count that the pod may be scheduled on."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """Whether nodes with taints that the pod does not tolerate are left out."""
