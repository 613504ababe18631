"""`blockhouse audit --continuous` on real servers: windows below what is committed, the test as the aggregator."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from blockhouse_aggregator.audit.sampling import SampledAudit, choose
from tests.integration.test_produce_audit import Pipeline, pipeline

pytestmark = pytest.mark.integration
__all__ = ["pipeline"]
WHOLE = 1_000_000
"""A window that takes all that is committed of a stream."""


def commit(pipeline: Pipeline, sent: list[dict[str, Any]]) -> None:
    """Commit the end of what was sent, for every stream, as an owner does that has stored it all."""
    group = yaml.safe_load(pipeline.file.read_text())["kafka"]["group"]
    for cluster in pipeline.clusters:
        ends: dict[int, int] = {}
        for message in sent:
            if message["cluster"] == cluster.name:
                ends[message["partition"]] = max(ends.get(message["partition"], 0), message["offset"] + 1)
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
        with closing(Consumer(settings)) as consumer:
            consumer.committed([TopicPartition(pipeline.topic, 0)], timeout=30)
            offsets = [TopicPartition(pipeline.topic, partition, end) for partition, end in ends.items()]
            assert offsets
            for done in consumer.commit(offsets=offsets, asynchronous=False) or []:
                assert done.error is None, done.error


def sampled(pipeline: Pipeline, seconds: float = 0) -> int:
    replicas = [f"--replica={r.host}:{r.port}" for r in pipeline.replicas]
    options = ["--continuous", "--json", "--every", "0", "--for", str(seconds), "--grace", "20"]
    return pipeline.run("audit", *replicas, *options, "--window", str(WHOLE))


def test_windows_of_what_is_stored_are_exact(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    sent = pipeline.produce("--messages", "60", "--table", f"default.{pipeline.table}")
    assert sampled(pipeline) == 3, "nothing is committed: nothing was promised"
    pipeline.store(sent)
    commit(pipeline, sent)
    capsys.readouterr()

    code = sampled(pipeline, seconds=5)

    windows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert len({window["stream"] for window in windows}) > 1
    assert all(window["exact"] and window["messages"] == window["end"] - window["begin"] > 0 for window in windows)


@pytest.mark.parametrize("fault", ["missing", "duplicates"])
def test_a_lost_and_a_doubled_row_are_found(pipeline: Pipeline, fault: str) -> None:
    sent = pipeline.produce("--messages", "40", "--table", f"default.{pipeline.table}")
    first: dict[tuple[str, int], dict[str, Any]] = {}
    for message in sent:
        first.setdefault((message["cluster"], message["partition"]), message)
    lost = list(first.values())
    pipeline.store([message for message in sent if fault == "duplicates" or message not in lost])
    if fault == "duplicates":
        pipeline.store([message | {"row_numbers": [0]} for message in lost])
    commit(pipeline, sent)
    spec = pipeline.spec

    with SampledAudit(
        spec, group(pipeline), size=WHOLE, grace=0 if fault == "missing" else 20, random=Random(1)
    ) as audit:
        window = audit.take()

    assert window is not None
    assert not window.exact
    (stream,) = {str(o.stream) for table in window.tables for o in table.offenders}
    assert stream == str(window.stream)
    for table in window.tables:
        assert getattr(table, fault) > 0, table
        offenders = {offender.example.offset for offender in table.offenders}
        assert offenders == {first[window.stream.cluster, window.stream.partition]["offset"]}


def group(pipeline: Pipeline) -> str:
    name: str = yaml.safe_load(Path(pipeline.file).read_text())["kafka"]["group"]
    return name


def test_a_window_lies_in_what_is_committed_and_the_newest_is_taken_often() -> None:
    random = Random(1)

    windows = [choose(100, 1_000, 50, random) for _ in range(400)]

    assert all(w is not None and 100 <= w[0] < w[1] <= 1_000 and w[1] - w[0] == 50 for w in windows)
    assert 150 < sum(w == (950, 1_000) for w in windows) < 280
    assert choose(100, 120, 50, random) == (100, 120)
    assert choose(100, 100, 50, random) is None
