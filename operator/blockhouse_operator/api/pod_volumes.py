"""Volumes that a user may add to pods of ours, of kinds that the PodSecurity level `restricted` admits, and mounts."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import normpath
from typing import Annotated, Literal

from pydantic import Field, model_validator

from blockhouse_operator.api.base import Key, ListMap, ObjectName, Part, Quantity, Rule, listed
from blockhouse_operator.api.references import LocalRef

DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", max_length=63)]
"""Name of a container or a volume."""
Mode = Annotated[int, Field(ge=0, le=0o777)]
"""Rights of a file, as a decimal number: 288 is 0440."""

RESERVED_VOLUMES = (
    *("clickhouse-config", "clickhouse-login", "clickhouse-tmp", "config", "data", "internal", "tmp"),
    "zookeeper-login",
)
KAFKA_VOLUMES = "kafka-"
"""How the names of volumes with logins of Kafka clusters begin."""
OWN_PATHS = ("/etc/blockhouse", "/etc/clickhouse-server", "/tmp", "/var/lib/clickhouse")
"""Where our containers have volumes of their own."""
DATA_VOLUME = "data"
"""The one volume of ours that a sidecar may mount."""


class VolumeMount(Part):
    """Where a container has a volume."""

    name: DnsLabel
    """Name of the volume."""
    mount_path: Annotated[str, Field(pattern=r"^/[^:]+$", max_length=512)]
    """Path in the container."""
    sub_path: Annotated[str, Field(pattern=r"^[^/:][^:]*$", max_length=512)] | None = None
    """Path in the volume; default its root."""
    read_only: bool = False
    """Whether the container may only read."""


class FileOf(Part):
    """A key as a file."""

    key: Key
    """The key."""
    path: Annotated[str, Field(pattern=r"^[^/:][^:]*$", max_length=512)]
    """Path of the file in the volume."""
    mode: Mode | None = None
    """Its rights."""


Files = Annotated[tuple[FileOf, ...], Field(max_length=64)]


class ConfigMapVolume(Part):
    """Files from a ConfigMap."""

    name: ObjectName
    """Name of the ConfigMap."""
    items: Files = ()
    """Keys and their files; default all."""
    default_mode: Mode | None = None
    """Rights of the files."""
    optional: bool = False
    """Whether the pod starts without it."""


class SecretVolume(Part):
    """Files from a Secret."""

    secret_name: ObjectName
    """Name of the Secret."""
    items: Files = ()
    """Keys and their files; default all."""
    default_mode: Mode | None = None
    """Rights of the files."""
    optional: bool = False
    """Whether the pod starts without it."""


class EmptyDirVolume(Part):
    """A folder that lives as long as the pod."""

    size_limit: Quantity | None = None
    """Size at which the pod is evicted."""
    medium: Literal["Memory"] | None = None
    """Where it is; default the node's disk."""


class ClaimVolume(Part):
    """A volume claim of the namespace. All replicas of all shards mount the same one."""

    claim_name: ObjectName
    """Name of the claim."""
    read_only: bool = False
    """Whether it is mounted to be read only."""


class CsiVolume(Part):
    """A volume of a CSI driver that lives as long as the pod, such as the Secrets Store's."""

    driver: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the driver."""
    read_only: bool = False
    """Whether it is mounted to be read only."""
    fs_type: Annotated[str, Field(max_length=63)] | None = None
    """File system; default the driver's."""
    volume_attributes: Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=32)] = {}
    """What the driver is to know."""
    node_publish_secret_ref: LocalRef | None = None
    """A Secret for the driver."""


class Volume(Part):
    """A volume of a pod, of exactly one kind."""

    rules = (
        Rule(
            "[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim),"
            " has(self.csi)].filter(given, given).size() == 1",
            "give exactly one of configMap, secret, emptyDir, persistentVolumeClaim and csi",
        ),
    )

    name: DnsLabel
    """Its name, for mounts. Those of the pod's own volumes are taken."""
    config_map: ConfigMapVolume | None = None
    """Files from a ConfigMap."""
    secret: SecretVolume | None = None
    """Files from a Secret."""
    empty_dir: EmptyDirVolume | None = None
    """A folder that lives as long as the pod."""
    persistent_volume_claim: ClaimVolume | None = None
    """A volume claim."""
    csi: CsiVolume | None = None
    """A volume of a CSI driver."""

    @model_validator(mode="after")
    def _one_kind(self) -> Volume:
        kinds = [self.config_map, self.secret, self.empty_dir, self.persistent_volume_claim, self.csi]
        if kinds.count(None) != len(kinds) - 1:
            raise ValueError("give exactly one of configMap, secret, emptyDir, persistentVolumeClaim and csi")
        return self


Mounts = Annotated[tuple[VolumeMount, ...], Field(max_length=32)]
Volumes = Annotated[
    tuple[Volume, ...],
    Field(max_length=32),
    ListMap(),
    Rule(
        f"self.all(v, !(v.name in [{listed(RESERVED_VOLUMES)}]) && !v.name.startsWith('{KAFKA_VOLUMES}'))",
        f"taken: {', '.join(RESERVED_VOLUMES)}, and all that begin with {KAFKA_VOLUMES}",
    ),
]


def reserved_volume(name: str) -> bool:
    """Whether a volume is one that our pods have."""
    return name in RESERVED_VOLUMES or name.startswith(KAFKA_VOLUMES)


def reserved_path(path: str) -> bool:
    """Whether a mount at a path would cover a folder of our containers, or lie in one."""
    return any(_within(path, own) or _within(own, path) for own in OWN_PATHS)


def mount_paths(mounts: Mounts) -> list[str]:
    """Paths of mounts, normalised. Raises ValueError for one that is given twice."""
    paths = [normpath(mount.mount_path) for mount in mounts]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise ValueError(f"volumeMounts: {twice[0]} is given twice")
    return paths


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def require_known(where: str, mounts: Mounts, known: Iterable[str]) -> None:
    """Raises ValueError for a mount of a volume that is not among the known ones."""
    if unknown := [mount.name for mount in mounts if mount.name not in known]:
        raise ValueError(f"{where}: volumeMounts: {', '.join(unknown)} is not in template.pod.volumes")
