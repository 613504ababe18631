"""The ClickHouse part of the resources: replicas of our own, or replicas that somebody else deploys."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from blockhouse_operator.api.base import IMMUTABLE, ListMap, ObjectName, Part, Quantity, Rule
from blockhouse_operator.api.references import ConfigMapKeyRef, PasswordSecretRef, Tls

Image = Annotated[str, Field(min_length=1, max_length=512)]
"""A container image, best with its digest."""
ResourceMap = Annotated[dict[str, Quantity], Field(max_length=16)]


class Resources(Part):
    """Resources of a container."""

    requests: ResourceMap = {}
    """What the scheduler sets aside: `cpu`, `memory`."""
    limits: ResourceMap = {}
    """What the container may use at most."""


class Storage(Part):
    """The volume of one replica."""

    size: Annotated[
        str,
        Field(pattern=r"^[1-9][0-9]*(Mi|Gi|Ti)$", max_length=20),
        Rule("quantity(self).compareTo(quantity(oldSelf)) >= 0", "a volume can grow but not shrink"),
    ]
    """Size of the volume; it can grow where the storage class allows it."""
    class_name: ObjectName | None = None
    """Storage class; without it the cluster's default."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Whether the volume claim survives the pipeline."""


class User(Part):
    """A user who may query a managed ClickHouse from outside its pod."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$", max_length=32)]
    """Login. `default` and `cluster` are taken."""
    password_secret_ref: PasswordSecretRef
    """Where the password is; a changed one counts when the pod is restarted."""
    read_only: bool = True
    """May only read."""


class ManagedClickHouse(Part):
    """ClickHouse replicas that the operator runs, each beside its aggregator."""

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
    cluster_secret_ref: PasswordSecretRef | None = None
    """Password with which replicas query each other. Without it the operator makes one; give it when zones lie in
    several Kubernetes clusters, so that all have the same."""
    settings_from: ConfigMapKeyRef | None = None
    """A ConfigMap's key with further server settings (XML, merged over ours). The pods must be restarted by hand
    after a change of its content."""

    @model_validator(mode="after")
    def _users(self) -> ManagedClickHouse:
        if taken := {"default", "cluster"} & {user.name for user in self.users}:
            raise ValueError(f"users: {', '.join(sorted(taken))} is taken")
        return self


class ExistingClickHouse(Part):
    """ClickHouse replicas that somebody else deploys. Nothing of theirs is ever changed."""

    host_template: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9.-]*(\{(shard|replica|zone|index)\}[A-Za-z0-9.-]*)+$", max_length=253)
    ]
    """Host of a replica: `{shard}`, `{replica}` (number in the shard), `{zone}`, `{index}` (number in the zone)."""
    port: Annotated[int, Field(ge=1, le=65535)] = 9000
    """Native port."""
    user: Annotated[str, Field(min_length=1, max_length=64)] = "default"
    """Login of the aggregators."""
    password_secret_ref: PasswordSecretRef | None = None
    """Where its password is."""
    tls: Tls | None = None
    """TLS of the native protocol; an empty object turns it on."""


class ClickHouseSpec(Part):
    """Where rows go: exactly one of `managed` and `existing`."""

    rules = (
        Rule("has(self.managed) != has(self.existing)", "give exactly one of managed and existing"),
        Rule("has(self.managed) == has(oldSelf.managed)", "managed and existing cannot replace each other"),
    )

    cluster: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$", max_length=63), IMMUTABLE]
    """Name of the ClickHouse cluster: in `remote_servers`, for Distributed tables. Cannot be changed."""
    managed: ManagedClickHouse | None = None
    """Replicas that the operator runs."""
    existing: ExistingClickHouse | None = None
    """Replicas that somebody else runs."""

    @model_validator(mode="after")
    def _one_kind(self) -> ClickHouseSpec:
        if (self.managed is None) == (self.existing is None):
            raise ValueError("give exactly one of managed and existing")
        return self
