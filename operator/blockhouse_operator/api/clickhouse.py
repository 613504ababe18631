"""The ClickHouse part of the resources: replicas of our own, or replicas deployed by others."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import Field, model_validator

from blockhouse.config import endpoints
from blockhouse_operator.api.base import IMMUTABLE, ListMap, ObjectName, Part, Quantity, Rule
from blockhouse_operator.api.clickhouse_files import (
    TAKEN_SETTINGS,
    ConfigFiles,
    NamedQuota,
    Profile,
    QuotaLimits,
    ServerSettings,
    SettingMap,
    ShortName,
)
from blockhouse_operator.api.declared import declares
from blockhouse_operator.api.references import CaSecretRef, ConfigMapKeyRef, PasswordSecretRef, Tls, TlsSecretRef

Image = Annotated[str, Field(min_length=1, max_length=512)]
"""A container image, best with its digest."""
ResourceMap = Annotated[dict[str, Quantity], Field(max_length=16)]


Network = Annotated[str, Field(pattern=r"^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$", max_length=64)]
"""An IP address, or a network with the length of its prefix."""
Database = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
"""Name of a database."""
_SETTING = re.compile(r"^[a-z][a-z0-9_]*$")
SERVER_SETTING = re.compile(r"^[a-z][a-z0-9_]*(/[a-z][a-z0-9_]*)?$")
OF_USER = "of_"
"""How the names of profiles and quotas begin that belong to one user."""


class Resources(Part):
    """Resources of a container."""

    requests: ResourceMap = {}
    """What the scheduler sets aside: `cpu`, `memory`."""
    limits: ResourceMap = {}
    """What the container may use at most."""


class Storage(Part):
    """The volume of one replica."""

    size: Annotated[str, Field(pattern=r"^[1-9][0-9]*(Mi|Gi|Ti)$", max_length=20)]
    """Size of the volume; it can grow where the storage class allows it, and can be taken back until it has grown."""
    class_name: ObjectName | None = None
    """Storage class; without it the cluster's default."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Whether the volume claim survives the pipeline."""


class Quota(QuotaLimits):
    """How much a user may ask for in an interval; 0 is unlimited."""


class User(Part):
    """A user who may query a managed ClickHouse from outside its pod."""

    rules = (
        Rule(
            "!has(self.settings) || self.settings.all(name, name.matches('^[a-z][a-z0-9_]*$'))",
            "settings: expected names of letters, digits and underscores",
        ),
        Rule("!(has(self.quota) && has(self.quotaName))", "give at most one of quota and quotaName"),
    )

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$", max_length=32)]
    """Login. `default` and `cluster` are taken."""
    password_secret_ref: PasswordSecretRef
    """Where the password is. While the Secret or its key is missing, or empty, there is no such user; a changed one
    counts within three minutes, without a restart."""
    read_only: bool = True
    """May only read."""
    networks: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$", max_length=64)], ...],
        Field(max_length=32),
    ] = ()
    """Addresses it may come from, each an IP address or a network such as `10.0.0.0/8`; default everywhere."""
    databases: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)], ...], Field(max_length=32)
    ] = ()
    """Databases it may use; default all."""
    settings: SettingMap = {}
    """Settings of its own, such as `max_memory_usage`; they count before those of `profile`."""
    profile: ShortName | None = None
    """One of `profiles`, whose settings count for it."""
    quota: Quota | None = None
    """How much it may ask for."""
    quota_name: ShortName | None = None
    """One of `quotas`, in place of a quota of its own."""

    @model_validator(mode="after")
    def _usable(self) -> User:
        for network in self.networks:
            try:
                ip_network(network, strict=False)
            except ValueError:
                raise ValueError(
                    f"networks: {network} is neither an IP address nor a network such as 10.0.0.0/8"
                ) from None
        if wrong := [name for name in self.settings if not _SETTING.match(name)]:
            raise ValueError(f"settings: {', '.join(wrong)}: expected names of letters, digits and underscores")
        if self.quota is not None and self.quota_name is not None:
            raise ValueError("give at most one of quota and quotaName")
        return self


class ServerTls(Part):
    """TLS of a server that the operator runs."""

    secret_ref: TlsSecretRef
    """The servers' certificate, for the hosts of all replicas and of the query Services, as cert-manager makes it.
    Current servers read a renewed one by themselves; 18.16 has to be restarted."""
    ca_secret_ref: CaSecretRef | None = None
    """Authorities by which replicas trust each other, and the operator trusts them; those of the image without it. A
    server has one list: where `zookeeper.ensembles[].tls` names authorities as well, these must contain them."""
    mode: Literal["Allowed", "Required"] = "Allowed"
    """`Allowed`: ports 9440 and 8443 beside those without TLS. `Required`: no port without TLS, between replicas
    neither. To be chosen when the pipeline is created: servers with and without it do not replicate."""

    @property
    def required(self) -> bool:
        """Whether there is no port without TLS."""
        return self.mode == "Required"


class ManagedClickHouse(Part):
    """ClickHouse replicas that the operator runs, each beside its aggregator."""

    rules = (
        Rule(
            "(has(self.tls) && has(self.tls.mode) && self.tls.mode == 'Required')"
            " == (has(oldSelf.tls) && has(oldSelf.tls.mode) && oldSelf.tls.mode == 'Required')",
            "tls.mode Required can be neither chosen nor left: replicas with and without it do not replicate",
        ),
        Rule(
            "has(self.interserverSecretRef) == has(oldSelf.interserverSecretRef)",
            "interserverSecretRef can be neither added nor removed: replicas with and without it refuse each other",
        ),
    )

    image: Image
    """Image of the server; `clickhouse-server` must be on its path."""
    storage: Storage
    """The volume of each replica."""
    resources: Resources = Resources()
    """Resources of each server."""
    users: Annotated[
        tuple[User, ...],
        Field(max_length=32),
        ListMap(),
        Rule("self.all(u, !(u.name in ['default', 'cluster']))", "users 'default' and 'cluster' are taken"),
    ] = ()
    """Who may query from outside."""
    profiles: Annotated[
        tuple[Profile, ...],
        Field(max_length=32),
        ListMap(),
        Rule("self.all(p, !(p.name in ['default', 'readonly']))", "profiles 'default' and 'readonly' are taken"),
    ] = ()
    """Settings that users share. A change counts within three minutes, without a restart."""
    quotas: Annotated[
        tuple[NamedQuota, ...],
        Field(max_length=32),
        ListMap(),
        Rule("self.all(q, q.name != 'default')", "quota 'default' is taken"),
    ] = ()
    """Quotas that users share, each counted for every user by itself."""
    settings: ServerSettings = {}
    """Settings of the servers, such as `max_concurrent_queries` or `merge_tree/max_suspicious_broken_parts`. A change
    restarts them, one of a shard at a time."""
    config_files: ConfigFiles = ()
    """Further files of the servers (`config.d`). A changed content restarts them, one of a shard at a time; while a
    source is missing or its content cannot be used, all of them stay as they were."""
    user_files: ConfigFiles = ()
    """Further files of users, profiles and quotas (`users.d`), read again within three minutes, without a restart but
    for the first one. One whose source is missing, or whose content cannot be used, stays as it was."""
    cluster_secret_ref: PasswordSecretRef | None = None
    """Password with which replicas query each other. Without it the operator makes one; give it when zones lie in
    several Kubernetes clusters, so that all have the same."""
    interserver_secret_ref: PasswordSecretRef | None = None
    """Password that a replica demands of a peer that fetches parts from it (user `interserver`). Without it the
    replication port is protected by the network policy alone, and by nothing where a zone has a `hostTemplate`. To be
    given when the pipeline is created: servers with and without it refuse each other, so it can be neither added nor
    removed. Another content of the Secret replaces it by overlap, on servers since 22.1 without a restart."""
    tls: ServerTls | None = None
    """TLS of the servers."""
    settings_from: ConfigMapKeyRef | None = None
    """A ConfigMap's key with further server settings (XML, merged over ours). The pods must be restarted by hand
    after a change of its content."""

    @property
    def secure(self) -> bool:
        """Whether its servers have no port without TLS."""
        return self.tls is not None and self.tls.required

    @model_validator(mode="after")
    def _settings_are_free(self) -> ManagedClickHouse:
        for name in self.settings:
            if not SERVER_SETTING.match(name):
                raise ValueError(f"settings: {name}: expected NAME or SECTION/NAME")
            if name.partition("/")[0] in TAKEN_SETTINGS:
                raise ValueError(f"settings: {name}: this part of the configuration is the operator's")
        return self

    @model_validator(mode="after")
    def _users(self) -> ManagedClickHouse:
        if taken := {"default", "cluster"} & {user.name for user in self.users}:
            raise ValueError(f"users: {', '.join(sorted(taken))} is taken")
        for sort, names, ours in (
            ("profile", {profile.name for profile in self.profiles}, {"default", "readonly"}),
            ("quota", {quota.name for quota in self.quotas}, {"default"}),
        ):
            if taken := ours & names:
                raise ValueError(f"{sort}s: {', '.join(sorted(taken))} is taken")
            if wrong := [name for name in names if name.startswith(OF_USER)]:
                raise ValueError(f"{sort}s: {wrong[0]}: names that begin with {OF_USER} are those of single users")
        for user in self.users:
            if user.profile is not None and user.profile not in {profile.name for profile in self.profiles}:
                raise ValueError(f"users: {user.name}: there is no profile {user.profile}")
            if user.quota_name is not None and user.quota_name not in {quota.name for quota in self.quotas}:
                raise ValueError(f"users: {user.name}: there is no quota {user.quota_name}")
        return self


@declares(endpoints.ClickHouse, "port", "user")
class ExistingClickHouse(Part):
    """ClickHouse replicas deployed by others. Nothing of theirs is ever changed."""

    host_template: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9.-]*(\{(shard|replica|zone|index)\}[A-Za-z0-9.-]*)+$", max_length=253)
    ]
    """Host of a replica: `{shard}`, `{replica}` (number in the shard), `{zone}`, `{index}` (number in the zone)."""
    password_secret_ref: PasswordSecretRef | None = None
    """Where its password is."""
    tls: Tls | None = None
    """TLS of the native protocol; an empty object turns it on."""


@declares(endpoints.ClickHouse, "database", connect_timeout_seconds="connect_timeout")
class ClickHouseSpec(Part):
    """Where rows go: exactly one of `managed` and `existing`."""

    rules = (
        Rule("has(self.managed) != has(self.existing)", "give exactly one of managed and existing"),
        Rule("has(self.managed) == has(oldSelf.managed)", "managed and existing cannot replace each other"),
    )

    cluster: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$", max_length=63), IMMUTABLE]
    """Name of the ClickHouse cluster: in `remote_servers`, for Distributed tables. Cannot be changed."""
    remote_servers: Literal["Full", "Shard", "None"] = "Full"
    """Which replicas every managed server lists as that cluster: of all shards, of its own shard, or none. `Full` is
    refused where the list would not fit into a Secret, at about 1,000 shards of 4 replicas."""
    managed: ManagedClickHouse | None = None
    """Replicas that the operator runs."""
    existing: ExistingClickHouse | None = None
    """Replicas that others run."""

    @property
    def secure(self) -> bool:
        """Whether the operator runs its servers, and they have no port without TLS."""
        return self.managed is not None and self.managed.secure

    @model_validator(mode="after")
    def _one_kind(self) -> ClickHouseSpec:
        if (self.managed is None) == (self.existing is None):
            raise ValueError("give exactly one of managed and existing")
        return self
