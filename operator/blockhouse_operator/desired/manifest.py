"""What every manifest has: kind, name, labels and the owner that takes it along when it is deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blockhouse_operator.api.base import Part

Manifest = dict[str, Any]
"""A Kubernetes object as JSON, with exactly the fields that are ours."""


def manifest(
    kind: str,
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    owner: Mapping[str, Any] | None,
    api_version: str = "v1",
    **content: Any,
) -> Manifest:
    """An object. `owner` is an owner reference; None for what survives its resource."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(labels)}
    if owner is not None:
        metadata["ownerReferences"] = [dict(owner)]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def content_of(part: Part) -> dict[str, Any]:
    """A part of a resource as JSON, without what equals its default: a new default field changes no object."""
    dumped: dict[str, Any] = part.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return dumped


def without_nothing(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: an empty one would be owned by us and fill the object."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [], ())}
