"""Resource in, manifests out: the whole of what the operator asks of Kubernetes, to be read in a review.

`UPDATE_GOLDEN=1 pytest tests/golden` writes the files anew; look at the difference before committing it: a changed
template reaches running pods when they are restarted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from blockhouse_operator.api.resource import parse_block_aggregator, parse_mirror, parse_shard_ingest
from blockhouse_operator.desired import aggregator, mirror, shard
from tests.unit.operator.resources import ROOT, block_aggregator

KINDS = ("kind: BlockAggregator", "kind: KafkaMirror")
EXAMPLES = sorted(
    path for path in (ROOT / "examples").glob("*.yaml") if any(kind in path.read_text() for kind in KINDS)
)
GOLDEN = Path(__file__).parent / "operator"


class _Readable(yaml.SafeDumper):
    """Configuration files as blocks of text, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)


def manifests(example: Path) -> Iterator[dict[str, Any]]:
    """All that the mirror or the pipeline of an example consists of; of its shards only the first."""
    found = block_aggregator(path=example)
    if found["kind"] == "KafkaMirror":
        yield from mirror.children(parse_mirror(found), "0123456789ab")
        return
    pipeline = parse_block_aggregator(found)
    children = aggregator.children(pipeline)
    yield from children
    first = next(child for child in children if child["kind"] == "ClickHouseShardIngest")
    first = {**first, "metadata": {**first["metadata"], "uid": "0f0e0d0c-0000-4000-8000-000000000002"}}
    yield from shard.children(parse_shard_ingest(first))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_manifests_of_every_example_are_as_reviewed(example: Path) -> None:
    text = yaml.dump_all(manifests(example), Dumper=_Readable, sort_keys=True, width=120)
    golden = GOLDEN / example.name

    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)

    assert text == golden.read_text()
