"""The CustomResourceDefinitions, from the models. `scripts/generate` writes them; they are never edited."""

from __future__ import annotations

from typing import Any

from blockhouse_operator.api import names
from blockhouse_operator.api.base import Part, Rule
from blockhouse_operator.api.labels import GROUP, VERSION
from blockhouse_operator.api.mirror import KafkaMirrorSpec, KafkaMirrorStatus
from blockhouse_operator.api.pipeline import BlockAggregatorSpec
from blockhouse_operator.api.reassignment import KafkaReassignmentSpec, KafkaReassignmentStatus
from blockhouse_operator.api.schema import Schema, object_schema, rule_schema
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.api.status import BlockAggregatorStatus, ClickHouseShardIngestStatus

_NAME = Rule(
    f"self.metadata.name.matches('{names.PIPELINE}')",
    "metadata.name: expected a letter, then letters, digits and hyphens, at most 28 in all",
)
_NAME_OF_MANY = Rule(
    f"self.spec.shards <= {names.SHARDS_OF_ANY_NAME} || self.metadata.name.size() <= {names.LONGEST_OF_MANY}",
    f"metadata.name: {names.TOO_LONG}",
)


_NAME_OF_MIRROR = Rule(f"self.metadata.name.matches('{names.MIRROR_NAME}')", f"metadata.name: {names.MIRROR_WORDS}")


def _column(name: str, path: str, description: str, kind: str = "string", priority: int = 0) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "description": description, "priority": priority}


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_AGE = _column("Age", ".metadata.creationTimestamp", "Since when it exists.", "date")
_READY = (
    _column("Ready", _condition("Ready", "status"), "Whether it does its work."),
    _column("Reason", _condition("Ready", "reason"), "Why it is ready or not."),
)
_STREAMS = (
    _column("Owned", ".status.streams.owned", "Streams owned by a replica.", "integer"),
    _column("Streams", ".status.streams.expected", "Streams there are.", "integer"),
)


def block_aggregator() -> dict[str, Any]:
    """The CRD of BlockAggregator."""
    columns = (
        *_READY,
        _column("Shards", ".spec.shards", "Shards there should be.", "integer"),
        _column("Ready shards", ".status.shards.ready", "Shards that are ready.", "integer"),
        *_STREAMS,
        _column("Verdict", ".status.verifier.verdict", "The verifier's verdict."),
        _column("Message", _condition("Ready", "message"), "Why, in full.", priority=1),
        _AGE,
    )
    schema = _resource(
        "A pipeline: Kafka topics into the shards of a ClickHouse cluster, every row exactly once.",
        BlockAggregatorSpec,
        BlockAggregatorStatus,
    )
    schema["x-kubernetes-validations"] = [rule_schema(_NAME), rule_schema(_NAME_OF_MANY)]
    return _definition("BlockAggregator", "blockaggregators", "ba", schema, columns)


def shard_ingest() -> dict[str, Any]:
    """The CRD of ClickHouseShardIngest."""
    columns = (
        _column("Pipeline", ".spec.pipeline", "The BlockAggregator it belongs to."),
        _column("Shard", ".spec.shard", "Number of the shard.", "integer"),
        *_READY,
        _column("Replicas", ".status.readyReplicas", "Replicas that consume.", "integer"),
        *_STREAMS,
        _column("Message", _condition("Ready", "message"), "Why, in full.", priority=1),
        _AGE,
    )
    schema = _resource(
        "One shard of a BlockAggregator, made by the operator. Changes made by hand are undone.",
        ClickHouseShardIngestSpec,
        ClickHouseShardIngestStatus,
    )
    return _definition("ClickHouseShardIngest", "clickhouseshardingests", "csi", schema, columns)


def kafka_reassignment() -> dict[str, Any]:
    """The CRD of KafkaReassignment."""
    columns = (
        _column("Operation", ".spec.operation", "What is planned."),
        _column("Phase", ".status.phase", "How far it is."),
        _column("Plan", ".status.plan.hash", "Hash of the plan, to be approved."),
        _column("Partitions", ".status.plan.partitions", "Partitions that change.", "integer"),
        _column("Done", ".status.progress.done", "Partitions that are as planned.", "integer"),
        _column("Moving", ".status.progress.moving", "Partitions that move.", "integer"),
        _column("Left", ".status.progress.remainingBytes", "Bytes left.", "integer"),
        _column("ETA", ".status.progress.eta", "When it will be done."),
        _column("Stalled", _condition("Stalled", "reason"), "Why it cannot continue.", priority=1),
        _column("Summary", ".status.plan.summary", "Brokers before and after.", priority=1),
        _AGE,
    )
    schema = _resource(
        "Partitions of a Kafka cluster moved by a plan that is shown, approved by its hash, and carried out throttled.",
        KafkaReassignmentSpec,
        KafkaReassignmentStatus,
    )
    return _definition("KafkaReassignment", "kafkareassignments", "kr", schema, columns)


def kafka_mirror() -> dict[str, Any]:
    """The CRD of KafkaMirror."""
    columns = (
        *_READY,
        _column("Phase", ".status.phase", "What it does."),
        _column("Source", ".spec.source.name", "The cluster that is read."),
        _column("Target", ".spec.target.name", "The cluster that is written."),
        _column("Tasks", ".status.tasks.running", "Tasks that run.", "integer"),
        _column("Partitions", ".status.partitions.total", "Partitions of the source.", "integer"),
        _column("Stopped", ".status.partitions.stopped", "Partitions that stand still.", "integer"),
        _column("Rate", ".status.rate", "Bytes a second that the partitions weigh."),
        _column("Lag", ".status.lag", "How late the latest partition is."),
        _column("Delivery", ".spec.delivery", "How often a record arrives.", priority=1),
        _column("Message", _condition("Ready", "message"), "Why, in full.", priority=1),
        _AGE,
    )
    schema = _resource(
        "Topics of one Kafka cluster copied to another one, by load and without loss.",
        KafkaMirrorSpec,
        KafkaMirrorStatus,
    )
    schema["x-kubernetes-validations"] = [rule_schema(_NAME_OF_MIRROR)]
    return _definition("KafkaMirror", "kafkamirrors", "km", schema, columns)


def all_resources() -> tuple[dict[str, Any], ...]:
    """Every CRD, in the order of the reference."""
    return block_aggregator(), shard_ingest(), kafka_reassignment(), kafka_mirror()


def all_definitions() -> dict[str, dict[str, Any]]:
    """File name to CRD."""
    return {f"{crd['metadata']['name']}.yaml": crd for crd in all_resources()}


def _resource(description: str, spec: type[Part], status: type[Part]) -> Schema:
    return {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the API."},
            "kind": {"type": "string", "description": "Kind of the resource."},
            "metadata": {"type": "object"},
            "spec": {"description": "What is desired.", **object_schema(spec)},
            "status": {"description": "What was found.", **object_schema(status, defaults=False)},
        },
    }


def _definition(
    kind: str, plural: str, short: str, schema: Schema, columns: tuple[dict[str, Any], ...]
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["blockhouse"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(columns),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
