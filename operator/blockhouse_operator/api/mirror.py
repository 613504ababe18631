"""KafkaMirror: topics of one Kafka cluster copied to another one, by load and without loss, as its users write it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from blockhouse.config import mirror as settings
from blockhouse_operator.api import names
from blockhouse_operator.api.base import LabelMap, Part, Rule
from blockhouse_operator.api.clickhouse import Image, Resources
from blockhouse_operator.api.declared import declares
from blockhouse_operator.api.kafka import KafkaServers
from blockhouse_operator.api.parts import PodSecurity, Toleration
from blockhouse_operator.api.pipeline import NetworkPolicySpec, PullSecrets
from blockhouse_operator.api.pod_containers import ContainerTemplate
from blockhouse_operator.api.pod_volumes import require_known
from blockhouse_operator.api.references import AdminTls
from blockhouse_operator.api.status import Conditions, Count, Message, Name
from blockhouse_operator.api.template import ObjectTemplate, PodTemplate, ServiceTemplate

WORST_PARTITIONS = 10


@declares(settings.MirrorSpark, "master", "conf")
class MirrorSpark(Part):
    """The Spark application of a mirror, in its one pod."""


class MirrorTemplate(Part):
    """What a user adds to the objects of a mirror. Changes of the pod and of the container replace the pod."""

    pod: PodTemplate = PodTemplate()
    """The pod."""
    container: ContainerTemplate = ContainerTemplate()
    """The container of the mirror."""
    service: ServiceTemplate = ServiceTemplate()
    """The Service of the admin API and the metrics."""
    service_account: ObjectTemplate = ObjectTemplate()
    """The ServiceAccount."""

    @model_validator(mode="after")
    def _mounts_are_known(self) -> Self:
        require_known("container", self.container.volume_mounts, {volume.name for volume in self.pod.volumes})
        if any(sidecar.name == names.MIRROR for sidecar in self.pod.sidecars):
            raise ValueError(f"pod.sidecars: {names.MIRROR} is taken by the operator")
        return self


@declares(
    settings.MirrorConfig,
    "topics",
    "target_topics",
    "start",
    "delivery",
    "on_gap",
    "on_refused",
    "dead_letters",
    "in_flight",
    "commit_interval",
    "compression",
    "load",
    "rebalance",
    "log_format",
    "log_level",
)
class KafkaMirrorSpec(Part):
    """Copy topics of one Kafka cluster to another one, partition by partition and in order."""

    rules = (
        Rule(
            "self.source.name != self.target.name",
            "source and target have one name: give each cluster a name of its own",
        ),
        Rule("!has(self.delivery) || self.delivery != 'ExactlyOnce'", settings.NO_EXACTLY_ONCE),
    )

    source: KafkaServers
    """The cluster that is read."""
    target: KafkaServers
    """The cluster that is written. Positions are kept there, in the group `km-NAME`."""
    image: Image
    """Image; it is never taken from the operator's version, so that an upgrade of the operator restarts nothing."""
    resources: Resources = Resources()
    """Resources of the container."""
    spark: MirrorSpark = MirrorSpark()
    """Its Spark application."""
    node_selector: LabelMap = {}
    """Nodes that its pod may be on."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Taints that its pod tolerates."""
    security: PodSecurity = PodSecurity()
    """Who the container runs as."""
    image_pull_secrets: PullSecrets = ()
    """Secrets for pulling the image."""
    network_policy: NetworkPolicySpec = NetworkPolicySpec()
    """NetworkPolicy of the pod: only its admin API is reached, from pods."""
    admin_tls: AdminTls | None = None
    """TLS of the admin API, for the host of its Service. Needs an image of the operator's version."""
    template: MirrorTemplate = MirrorTemplate()
    """What the objects have besides."""
    suspend: bool = False
    """Mirror nothing: there is no pod. Positions stay for as long as the target keeps those of a group without members
    (`offsets.retention.minutes`)."""

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        if self.source.name == self.target.name:
            raise ValueError("source and target have one name: give each cluster a name of its own")
        return self


class MirrorTasks(Part):
    """Tasks of a mirror."""

    assigned: Count = 0
    """Tasks that the load asks for, within the bounds."""
    running: Count = 0
    """Of these, how many run."""
    capped_by: Annotated[str, Field(max_length=16)] = ""
    """What keeps their number from what the load asks for: Min, Max or Slots."""


class MirrorPartitions(Part):
    """Partitions of the source."""

    total: Count = 0
    """How many there are."""
    held: Count = 0
    """How many a task mirrors."""
    waiting: Count = 0
    """How many wait for what passes by itself."""
    stopped: Count = 0
    """How many stand still until a person decides."""


class StoppedPartition(Part):
    """A partition that stands still until a person decides."""

    topic: Name
    """Its topic in the source."""
    partition: Count = 0
    """Its number."""
    reason: Name = ""
    """Why, in one word; the table of `docs/mirror.md` has each."""
    message: Message = ""
    """Why, in full."""


class OffendingPartition(Part):
    """A partition that no assignment helps."""

    topic: Name
    """Its topic in the source."""
    partition: Count = 0
    """Its number."""
    rate: Annotated[str, Field(max_length=24)] = ""
    """What it weighs."""
    share: Annotated[str, Field(max_length=16)] = ""
    """Of what one task can carry."""
    advice: Message = ""
    """What helps."""


class KafkaMirrorStatus(Part):
    """State of a mirror. Rates and lag are rounded, so that not every change of them is a write."""

    observed_generation: Count = 0
    """The generation of the spec that this status is about."""
    phase: Annotated[str, Field(max_length=32)] = ""
    """Pending, Starting, Mirroring, Degraded, Suspended or Stalled."""
    conditions: Conditions = ()
    """Conditions."""
    revision: Name = ""
    """Hash of the present spec: that of a pod that is up to date."""
    tasks: MirrorTasks = MirrorTasks()
    """Its tasks."""
    partitions: MirrorPartitions = MirrorPartitions()
    """Partitions of the source."""
    rate: Annotated[str, Field(max_length=24)] = ""
    """Bytes a second that the partitions weigh."""
    lag: Annotated[str, Field(max_length=24)] = ""
    """How late the latest partition is that does not stand still."""
    stopped: Annotated[tuple[StoppedPartition, ...], Field(max_length=WORST_PARTITIONS)] = ()
    """The first ten partitions that stand still."""
    offending: Annotated[tuple[OffendingPartition, ...], Field(max_length=WORST_PARTITIONS)] = ()
    """The ten heaviest partitions that no assignment helps."""
