"""From the object that the API server sends to a value, or to the list of everything that is wrong with it.

`parse_*` judges the spec only: a reconcile checks `deletionTimestamp` first, so that an invalid object can
still be deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from blockhouse.errors import BlockhouseError
from blockhouse_operator.api import names
from blockhouse_operator.api.base import Part, Shared
from blockhouse_operator.api.clickhouse_files import MountedFile
from blockhouse_operator.api.labels import API_VERSION
from blockhouse_operator.api.mirror import KafkaMirrorSpec, KafkaMirrorStatus
from blockhouse_operator.api.pipeline import BlockAggregatorSpec
from blockhouse_operator.api.reassignment import KafkaReassignmentSpec, KafkaReassignmentStatus
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.api.status import BlockAggregatorStatus, ClickHouseShardIngestStatus

Object = Mapping[str, Any]
"""A Kubernetes object as JSON."""
_SHARED = Shared()
Spec = TypeVar("Spec", bound=Part)
Status = TypeVar("Status", bound=Part)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one field: `field` as in the resource, such as `spec.kafka.clusters[0].name`."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidSpec(BlockhouseError):
    """A resource cannot be used as it stands: a person has to change it."""

    def __init__(self, subject: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"{subject}: {'; '.join(map(str, problems))}")
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Resource(Generic[Spec, Status]):
    """A resource of ours: the parts of its metadata that matter, its spec, and the status last written."""

    kind: str
    name: str
    namespace: str
    uid: str
    generation: int
    spec: Spec
    status: Status
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, Any] | None = None
    """The owner reference of its controller: of a shard, the pipeline."""
    files: tuple[MountedFile, ...] = ()
    """Of a pipeline, the files of its ClickHouse servers as its Secret has them: what its shards are given."""
    secrets_hash: str = ""
    """Of a pipeline whose pods restart when a Secret changes: what shards are given of the contents."""

    def owners(self) -> frozenset[str]:
        """UIDs that children may have as their controller: of a shard its own, and the pipeline's for its volumes."""
        return frozenset({self.uid, *((self.owner["uid"],) if self.owner else ())})

    def reference(self) -> dict[str, Any]:
        """The owner reference of its children."""
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }


BlockAggregator = Resource[BlockAggregatorSpec, BlockAggregatorStatus]
ClickHouseShardIngest = Resource[ClickHouseShardIngestSpec, ClickHouseShardIngestStatus]
KafkaReassignment = Resource[KafkaReassignmentSpec, KafkaReassignmentStatus]
KafkaMirror = Resource[KafkaMirrorSpec, KafkaMirrorStatus]


def parse_block_aggregator(obj: Object) -> BlockAggregator:
    """A BlockAggregator. Raises InvalidSpec naming every field at fault."""
    name = obj["metadata"]["name"]
    if not re.match(names.PIPELINE, name):
        raise InvalidSpec(
            f"BlockAggregator {name}",
            [Problem("metadata.name", "expected a letter, then letters, digits and hyphens, at most 28 in all")],
        )
    pipeline = _parse(obj, "BlockAggregator", BlockAggregatorSpec, BlockAggregatorStatus)
    if pipeline.spec.shards > names.SHARDS_OF_ANY_NAME and len(name) > names.LONGEST_OF_MANY:
        raise InvalidSpec(f"BlockAggregator {name}", [Problem("metadata.name", names.TOO_LONG)])
    return pipeline


def parse_shard_ingest(obj: Object) -> ClickHouseShardIngest:
    """A ClickHouseShardIngest. Raises InvalidSpec naming every field at fault."""
    return _parse(obj, "ClickHouseShardIngest", ClickHouseShardIngestSpec, ClickHouseShardIngestStatus)


def shard_status(obj: Object) -> ClickHouseShardIngestStatus:
    """The status of a ClickHouseShardIngest, whatever its spec is; an empty one where another version wrote it."""
    return _status(ClickHouseShardIngestStatus, obj.get("status") or {})


def parse_reassignment(obj: Object) -> KafkaReassignment:
    """A KafkaReassignment. Raises InvalidSpec naming every field at fault."""
    return _parse(obj, "KafkaReassignment", KafkaReassignmentSpec, KafkaReassignmentStatus)


def parse_mirror(obj: Object) -> KafkaMirror:
    """A KafkaMirror. Raises InvalidSpec naming every field at fault."""
    name = obj["metadata"]["name"]
    if not re.match(names.MIRROR_NAME, name):
        raise InvalidSpec(f"KafkaMirror {name}", [Problem("metadata.name", names.MIRROR_WORDS)])
    return _parse(obj, "KafkaMirror", KafkaMirrorSpec, KafkaMirrorStatus)


def _parse(obj: Object, kind: str, spec: type[Spec], status: type[Status]) -> Resource[Spec, Status]:
    metadata = obj["metadata"]
    return Resource(
        kind=kind,
        name=metadata["name"],
        namespace=metadata.get("namespace", "default"),
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        spec=_validated(spec, obj.get("spec") or {}, f"{kind} {metadata['name']}"),
        status=_status(status, obj.get("status") or {}),
        annotations=metadata.get("annotations") or {},
        owner=next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None),
    )


def _validated(model: type[Spec], content: Mapping[str, Any], subject: str) -> Spec:
    try:
        return model.model_validate(content, context=_SHARED)
    except ValidationError as error:
        raise invalid(subject, error) from None  # pydantic's text quotes the input


def invalid(subject: str, error: ValidationError) -> InvalidSpec:
    """What is wrong with a spec, or with the settings that are derived from it and whose fields have its names."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    at = [fault["loc"] for fault in faults]
    problems = [
        Problem(_path(fault["loc"]), _message(fault["type"], fault["msg"]))
        for fault in faults
        # pydantic counts only the good items of a list: "too short" is no fault of its own when an item is
        if fault["type"] != "too_short" or not any(o[: len(fault["loc"])] == fault["loc"] != o for o in at)
    ]
    return InvalidSpec(subject, problems)


def _status(model: type[Status], content: Mapping[str, Any]) -> Status:
    """The status, or an empty one when another version wrote what we cannot read: it is rebuilt from what is seen."""
    try:
        return model.model_validate(content, context=_SHARED)
    except ValidationError:
        return model()


def _path(location: Sequence[str | int]) -> str:
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)


def _message(kind: str, message: str) -> str:
    if kind == "missing":
        return "is required"
    return message.removeprefix("Value error, ").replace("Input should", "should").replace("String should", "should")
