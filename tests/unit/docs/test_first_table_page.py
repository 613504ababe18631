"""What docs/first-table.md has people write into files is accepted, and fits the examples beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blockhouse.config.load import load, load_as
from blockhouse.config.producer import ProducerConfig
from blockhouse.schema.ddl import read_declaration
from blockhouse.schema.history import extend
from blockhouse.schema.model import TableHistory
from blockhouse.schema.proto import render_proto

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/first-table.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGE) if found == language]


def test_the_configuration_of_the_aggregator_and_of_the_producer_are_of_one_pipeline(tmp_path: Path) -> None:
    aggregator, producer = blocks("yaml")
    (tmp_path / "r1.yaml").write_text(aggregator)
    (tmp_path / "producer.yaml").write_text(producer)

    loads, sends = load(tmp_path / "r1.yaml"), load_as(ProducerConfig, tmp_path / "producer.yaml")

    assert (loads.kafka.topic, loads.zookeeper.root) == (sends.topic, sends.zookeeper.root)
    assert {cluster.name for cluster in loads.kafka.clusters} == {cluster.name for cluster in sends.clusters}
    assert loads.unknown_table == "deadLetter", "the page's dead letter is of an unknown table"


def test_the_table_is_that_of_the_examples_and_grows_by_its_column() -> None:
    first, second = (read_declaration("default.visits", text) for text in blocks("sql"))

    assert first == read_declaration("default.visits", (ROOT / "examples/producers/visits.sql").read_text())
    assert {each.column.name for each in second.columns} - {each.column.name for each in first.columns} == {"country"}
    history = extend(TableHistory(id=1, name="default.visits"), [each.column for each in first.columns])
    assert history.current is not None
    fields = re.findall(r"^  optional .*$", render_proto(history, history.current), re.MULTILINE)
    assert fields
    assert [field for field in fields if field not in PAGE] == []


@pytest.mark.parametrize("program", blocks("python"))
def test_the_programs_compile(program: str) -> None:
    compile(program, "first-table.md", "exec")
