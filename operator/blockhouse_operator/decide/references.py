"""Which Secrets and ConfigMaps a spec refers to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from blockhouse_operator.api.base import Part
from blockhouse_operator.api.pipeline import BlockAggregatorSpec
from blockhouse_operator.api.references import (
    CaSecretRef,
    ConfigMapKeyRef,
    PasswordSecretRef,
    SecretKeyRef,
    TlsSecretRef,
)
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """An object and the key in it that must be there."""

    kind: Literal["Secret", "ConfigMap"]
    name: str
    key: str

    def __str__(self) -> str:
        return f"key {self.key} of {self.kind} {self.name}"


def references(part: object) -> tuple[Reference, ...]:
    """Every reference in a spec or in a part of one, sorted, each once."""
    return tuple(sorted(set(_walk(part))))


def references_of_pods(spec: BlockAggregatorSpec | ClickHouseShardIngestSpec) -> tuple[Reference, ...]:
    """What pods cannot do without. Passwords of ClickHouse's users and sources of its configuration files are not among
    it: pods do not read these."""
    managed = spec.clickhouse.managed
    if managed is None:
        return references(spec)
    bare = managed.model_copy(update={"users": (), "cluster_secret_ref": None, "config_files": (), "user_files": ()})
    clickhouse = spec.clickhouse.model_copy(update={"managed": bare})
    return references(spec.model_copy(update={"clickhouse": clickhouse}))


def _walk(part: object) -> Iterator[Reference]:
    match part:
        case ConfigMapKeyRef():
            yield Reference("ConfigMap", part.name, part.key)
        case PasswordSecretRef() | CaSecretRef() | SecretKeyRef():
            yield Reference("Secret", part.name, part.key)
        case TlsSecretRef():
            yield Reference("Secret", part.name, "tls.crt")
            yield Reference("Secret", part.name, "tls.key")
        case Part():
            for field in type(part).model_fields:
                yield from _walk(getattr(part, field))
        case tuple():
            for item in part:
                yield from _walk(item)
        case _:  # open: texts and numbers refer to nothing
            return
