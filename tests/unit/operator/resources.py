"""Resources for tests: the example that users start from, with changes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from blockhouse_operator.api.resource import BlockAggregator, parse_block_aggregator

ROOT = Path(__file__).parents[3]
TWO_DATACENTERS = ROOT / "examples" / "two-datacenters.yaml"


def block_aggregator(*changes: tuple[str, Any], path: Path = TWO_DATACENTERS) -> dict[str, Any]:
    """The example as the API server would give it, with `("spec.kafka.clusters.0.name", value)` changed.

    The value `...` takes the field away.
    """
    obj: dict[str, Any] = copy.deepcopy(next(iter(yaml.safe_load_all(path.read_text()))))
    obj["metadata"] |= {"namespace": "data", "uid": "2b1f8a52-0000-4000-8000-000000000001", "generation": 3}
    for path_, value in changes:
        *steps, last = path_.split(".")
        at: Any = obj
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
        if value is ...:
            del at[last]
        else:
            at[int(last) if isinstance(at, list) else last] = value
    return obj


def pipeline(*changes: tuple[str, Any]) -> BlockAggregator:
    """The same, parsed."""
    return parse_block_aggregator(block_aggregator(*changes))
