"""What README shows of `kubectl describe` is what the operator writes: each Event is emitted here by its own code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from blockhouse_operator.api.crd import block_aggregator, shard_ingest
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.status import TableStatus
from blockhouse_operator.decide.pipeline import PipelineSeen, ShardState, describe_pipeline
from blockhouse_operator.decide.seen import AggregatorSeen, PodSeen, ReplicaSeen, StreamSeen
from blockhouse_operator.decide.shard import describe_shard, plan_shard
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.decide.transitions import Change, transitions
from tests.unit.operator.resources import pipeline
from tests.unit.operator.shard_world import NOW, consuming, shard

README = (Path(__file__).parents[3] / "README.md").read_text()
EVENT = re.compile(r"^ {2}(Normal|Warning) +(\w+) +\S+ +blockhouse-operator +(.+)$", re.MULTILINE)
PIPELINE = pipeline(("spec.shards", 1), ("spec.zones", [{"name": "dc-a", "replicas": 2}]), ("spec.quorum", 2))
CLICKS = "default.clicks"


def story() -> Iterator[tuple[tuple[ReplicaSeen, ...], bool, tuple[TableStatus, ...]]]:
    """Replicas, whether there was a quorum before, and tables: a start, then the end of a replica's pod."""
    spec = resolve(PIPELINE, 0)
    names = [replica.name for replica in spec.replicas]
    streams = expected_streams(spec)
    well = [
        replace(consuming(n), aggregator=AggregatorSeen(True, tuple(StreamSeen(s, "CONSUME") for s in streams)))
        for n in names
    ]
    first, second = well
    created = (TableStatus(name=CLICKS, state="AsSpecified"),)
    yield tuple(ReplicaSeen(name, "dc-a", scale=1) for name in names), False, ()
    creating = TableStatus(name=CLICKS, state="SchemaChanging", message=f"creating it at {names[0]}")
    starting = PodSeen(ready=False, spec_hash=NOW)
    yield (replace(first, pod=starting), replace(second, pod=starting)), False, (creating,)
    yield (first, second), False, created
    yield (replace(first, pod=PodSeen(ready=True, terminating=True, spec_hash=NOW)), second), True, created
    yield (replace(first, pod=starting), second), True, created
    yield (first, second), True, created


def events() -> Iterator[Change]:
    spec, before = resolve(PIPELINE, 0), ()
    for replicas, had_quorum, tables in story():
        seen = shard(*replicas, had_quorum=had_quorum)
        status, conditions = describe_shard(spec, seen, plan_shard(spec, seen), (), tables)
        state = ShardState(0, status.model_copy(update={"conditions": conditions}))
        _, after = describe_pipeline(PIPELINE.spec, PipelineSeen((state,)))
        yield from transitions(before, after)
        before = after  # type: ignore[assignment]


def test_every_event_of_the_readme_can_be_written_by_the_operator() -> None:
    shown = EVENT.findall(README)
    written = {("Warning" if event.warning else "Normal", event.reason, event.message) for event in events()}

    assert len(shown) >= 5, "the transcript was not found"
    assert [event for event in shown if event not in written] == [], f"the operator writes {sorted(written)}"


def test_the_columns_of_the_readme_are_those_of_the_definitions() -> None:
    for definition in (block_aggregator(), shard_ingest()):
        columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
        wide = "   ".join(["NAME", *(column["name"].upper() for column in columns if not column["priority"])])
        assert wide in re.sub(r" {3,}", "   ", README)
