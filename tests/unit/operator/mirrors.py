"""Mirrors for tests: the example with changes, and what a driver answers."""

from __future__ import annotations

from typing import Any

from blockhouse.contract.mirror import MirrorPartition, MirrorStatus, MirrorTask
from blockhouse_operator.api.resource import KafkaMirror, parse_mirror
from tests.unit.operator.resources import ROOT, block_aggregator

EXAMPLE = ROOT / "examples" / "mirror.yaml"


def kafka_mirror(*changes: tuple[str, Any]) -> dict[str, Any]:
    """The example as the API server would give it, changed as `block_aggregator` is."""
    return block_aggregator(*changes, path=EXAMPLE)


def mirror(*changes: tuple[str, Any]) -> KafkaMirror:
    """The same, parsed."""
    return parse_mirror(kafka_mirror(*changes))


def partition(number: int = 0, **more: Any) -> MirrorPartition:
    """A partition of the topic `t` that a task has, unless something else is given."""
    return MirrorPartition(topic="t", partition=number, **{"task": "task0", "holder": "task0", **more})


def page(*partitions: MirrorPartition, **more: Any) -> MirrorStatus:
    """What a driver answers that has these partitions and one task."""
    content: dict[str, Any] = {
        "mirror": "east",
        "source": "east",
        "target": "agg",
        "delivery": "EffectivelyOnce",
        "tasks": (MirrorTask(name="task0", running=True, partitions=len(partitions), bytes_per_second=1.0),),
        "capped_by": "",
        "quality": 1.0,
        "load_age_seconds": 1.0,
        "rebalances": {},
        "moved": 0,
        "latency_seconds": 0.0,
        "partitions": partitions,
        "offending": (),
        "errors": {},
    }
    return MirrorStatus(**content | more)
