"""What a user may add to containers of ours, and containers of the user's beside them. There is no field for what the
PodSecurity level `restricted` forbids, such as privileged containers or capabilities.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from blockhouse_operator.api import names
from blockhouse_operator.api.base import Key, ListMap, ObjectName, Part, Rule, listed
from blockhouse_operator.api.clickhouse import Image, Resources
from blockhouse_operator.api.pod_volumes import OWN_PATHS, DnsLabel, Mounts, mount_paths, reserved_path

PortName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$", max_length=15)]
"""Name of a port."""
Argument = Annotated[str, Field(max_length=8192)]
"""A word of a command."""
UserId = Annotated[int, Field(ge=1, le=4294967294)]
"""Id of a user or a group, never root's."""

RESERVED_VARIABLES = (
    "CLICKHOUSE_CLUSTER_PASSWORD",
    "CLICKHOUSE_INTERSERVER_HOST",
    "CLICKHOUSE_INTERSERVER_PASSWORD",
    "CLICKHOUSE_REPLICA",
    "CLICKHOUSE_ZOOKEEPER_LOGIN",
    "CLICKHOUSE_ZOOKEEPER_LOGIN_PASSWORD",
    "HOME",
    "SPARK_LOCAL_DIRS",
    "SPARK_USER",
)
OWN_VARIABLES = "BLOCKHOUSE_"
"""How variables begin that later versions may use."""
RESERVED_CONTAINERS = (names.AGGREGATOR, names.CLICKHOUSE, names.VERIFIER)
RESERVED_PORTS = (
    *(names.NATIVE_PORT, names.HTTP_PORT, names.INTERSERVER_PORT, names.ADMIN_PORT),
    *(names.SECURE_NATIVE_PORT, names.HTTPS_PORT, names.SECURE_INTERSERVER_PORT),
)


class KeyOf(Part):
    """One key of a Secret or a ConfigMap."""

    name: ObjectName
    """Name of the object."""
    key: Key
    """Key in it."""
    optional: bool = False
    """Whether the container starts without it."""


class FieldOf(Part):
    """A field of the pod."""

    field_path: Annotated[str, Field(min_length=1, max_length=253)]
    """Its path, such as `status.hostIP`."""


class EnvSource(Part):
    """Where the value of a variable is: exactly one of these."""

    rules = (
        Rule(
            "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(given, given).size() == 1",
            "give exactly one of secretKeyRef, configMapKeyRef and fieldRef",
        ),
    )

    secret_key_ref: KeyOf | None = None
    """A key of a Secret."""
    config_map_key_ref: KeyOf | None = None
    """A key of a ConfigMap."""
    field_ref: FieldOf | None = None
    """A field of the pod."""

    @model_validator(mode="after")
    def _one_source(self) -> EnvSource:
        if [self.secret_key_ref, self.config_map_key_ref, self.field_ref].count(None) != 2:
            raise ValueError("give exactly one of secretKeyRef, configMapKeyRef and fieldRef")
        return self


class EnvVar(Part):
    """A variable of a container."""

    rules = (Rule("!(has(self.value) && has(self.valueFrom))", "give at most one of value and valueFrom"),)

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=128)]
    """Its name."""
    value: Annotated[str, Field(max_length=8192)] | None = None
    """Its value."""
    value_from: EnvSource | None = None
    """Where its value is."""

    @model_validator(mode="after")
    def _one_value(self) -> EnvVar:
        if self.value is not None and self.value_from is not None:
            raise ValueError("give at most one of value and valueFrom")
        return self


class SeccompProfile(Part):
    """Which system calls are possible."""

    type: Literal["RuntimeDefault", "Localhost"]
    """The runtime's profile, or one of the node."""
    localhost_profile: Annotated[str, Field(max_length=253)] | None = None
    """Path of the node's profile."""


class SeLinuxOptions(Part):
    """SELinux labels."""

    level: Annotated[str, Field(max_length=63)] | None = None
    """Level."""
    type: Annotated[str, Field(max_length=63)] | None = None
    """Type."""


class SecurityContext(Part):
    """Who processes run as."""

    run_as_user: UserId | None = None
    """User id."""
    run_as_group: UserId | None = None
    """Group id."""
    run_as_non_root: bool | None = None
    """Whether a container that would run as root is refused."""
    seccomp_profile: SeccompProfile | None = None
    """Which system calls are possible."""
    se_linux_options: SeLinuxOptions | None = None
    """SELinux labels."""


class PodSecurityContext(SecurityContext):
    """Who the processes of a pod run as, and whose its volumes are."""

    fs_group: UserId | None = None
    """Group of the volumes."""
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = None
    """Whether a volume's files get the group at each start."""
    supplemental_groups: Annotated[tuple[UserId, ...], Field(max_length=16)] = ()
    """Further groups."""


class Capabilities(Part):
    """Capabilities of Linux."""

    drop: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=64)] = ()
    """Those that are taken away; `ALL` for all."""


class ContainerSecurityContext(SecurityContext):
    """Who a container runs as, and what it may do."""

    read_only_root_filesystem: bool | None = None
    """Whether it writes only into volumes."""
    allow_privilege_escalation: bool | None = None
    """Whether a process may get more rights than its parent."""
    capabilities: Capabilities | None = None
    """What it may do."""


Env = Annotated[tuple[EnvVar, ...], Field(max_length=64), ListMap()]
OwnEnv = Annotated[
    tuple[EnvVar, ...],
    Field(max_length=64),
    ListMap(),
    Rule(
        f"self.all(e, !(e.name in [{listed(RESERVED_VARIABLES)}]) && !e.name.startsWith('{OWN_VARIABLES}'))",
        f"taken: {', '.join(RESERVED_VARIABLES)}, and all that begin with {OWN_VARIABLES}",
    ),
]


def reserved_variable(name: str) -> bool:
    """Whether a variable is one that our containers have, or may have in a later version."""
    return name in RESERVED_VARIABLES or name.startswith(OWN_VARIABLES)


class ContainerTemplate(Part):
    """What a container of ours has besides."""

    env: OwnEnv = ()
    """Variables."""
    volume_mounts: Mounts = ()
    """Where it has volumes of `template.pod.volumes`; not at, in or above a folder of its own."""
    security_context: ContainerSecurityContext | None = None
    """In place of ours (no writes outside volumes, no privileges, no capabilities); an empty one leaves it out."""

    @model_validator(mode="after")
    def _free(self) -> Self:
        if taken := [variable.name for variable in self.env if reserved_variable(variable.name)]:
            raise ValueError(f"env: {', '.join(taken)} is taken by the operator")
        for path in mount_paths(self.volume_mounts):
            if reserved_path(path):
                raise ValueError(f"volumeMounts: {path}: the container has {', '.join(OWN_PATHS)} for itself")
        return self


class SidecarPort(Part):
    """A port on which a sidecar listens."""

    name: PortName
    """Its name."""
    container_port: Annotated[int, Field(ge=1, le=65535)]
    """Its number; the network policy opens it to pods."""
    protocol: Literal["TCP", "UDP"] = "TCP"
    """Its protocol."""


Ports = Annotated[
    tuple[SidecarPort, ...],
    Field(max_length=16),
    ListMap(),
    Rule(f"self.all(p, !(p.containerPort in [{listed(RESERVED_PORTS)}]))", f"taken: {listed(RESERVED_PORTS)}"),
]
"""Ports of a sidecar."""


class Sidecar(Part):
    """A container of the user's. It starts before ClickHouse and ends after the aggregator, as Kubernetes has sidecars,
    so that a proxy serves from the first connection to the last."""

    name: DnsLabel
    """Its name. Those of the pod's own containers are taken."""
    image: Image
    """Its image."""
    command: Annotated[tuple[Argument, ...], Field(max_length=64)] = ()
    """Program; default the image's."""
    args: Annotated[tuple[Argument, ...], Field(max_length=64)] = ()
    """Arguments."""
    env: Env = ()
    """Variables."""
    ports: Ports = ()
    """Where it listens."""
    resources: Resources = Resources()
    """Its resources."""
    volume_mounts: Mounts = ()
    """Where it has volumes of `template.pod.volumes`, or `data`, the volume of a managed ClickHouse."""
    security_context: ContainerSecurityContext | None = None
    """In place of that of our own containers, which it has too; an empty one leaves it out."""

    @model_validator(mode="after")
    def _free(self) -> Self:
        mount_paths(self.volume_mounts)
        if taken := [str(port.container_port) for port in self.ports if port.container_port in RESERVED_PORTS]:
            raise ValueError(f"ports: {', '.join(taken)} is taken by the operator")
        return self


Sidecars = Annotated[
    tuple[Sidecar, ...],
    Field(max_length=8),
    ListMap(),
    Rule(f"self.all(c, !(c.name in [{listed(RESERVED_CONTAINERS)}]))", f"taken: {', '.join(RESERVED_CONTAINERS)}"),
]
