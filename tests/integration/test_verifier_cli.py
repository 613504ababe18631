"""`blockhouse verify` and `blockhouse streams history` on real history: exit codes, evidence, the story."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from blockhouse import cli
from blockhouse.metadata import codec
from e2e.stack import Stack
from tests.integration.conftest import Names, TopicFactory
from tests.integration.verifier_rogue import Rogue, config, sound

pytestmark = pytest.mark.integration


@pytest.fixture
def rogue(stack: Stack, names: Names, topic: TopicFactory) -> Iterator[Rogue]:
    with closing(Rogue(stack, "a", topic(1), names.group)) as made:
        yield made


def written(stack: Stack, names: Names, rogue: Rogue, folder: Path, **more: Any) -> Path:
    path = folder / "verifier.yaml"
    path.write_text(yaml.safe_dump(config(stack, names, rogue.topic, 0, tableNames={"1": "db.clicks"}, **more)))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    capture = capsys.readouterr()
    return int(ended.value.code or 0), capture.out + capture.err


def test_verify_exits_0_for_a_sound_history_and_1_with_the_evidence_for_another(
    stack: Stack, names: Names, rogue: Rogue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(stack, names, rogue, tmp_path))
    last = sound(rogue)

    code, text = run(capsys, "verify", "--config", path)
    assert (code, "clean: no anomaly" in text) == (0, True), text

    doubled = replace(last, seq=4, tables=(replace(last.tables[0], in_flight=sound_block(last, crc=8)), last.tables[1]))
    rogue.owner(doubled)
    code, text = run(capsys, "verify", "--config", path)
    assert (code, "NOT CLEAN: 1 anomalies" in text) == (1, True), text
    assert f"overlap {rogue.stream} db.clicks [30, 39]" in text
    assert codec.encode(last) in text
    assert codec.encode(doubled) in text

    code, text = run(capsys, "verify", "--config", path, "--json", "--since", "1h")
    report = json.loads(text)
    assert (code, report["verdict"], report["coverage"]["a"]["commits"]) == (1, "anomalies", 4)


def sound_block(last: Any, crc: int) -> Any:
    return replace(last.tables[0].in_flight, crc=crc)


def test_verify_exits_2_when_a_cluster_cannot_be_read(
    stack: Stack, names: Names, rogue: Rogue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = [{"name": "a", "bootstrapServers": "127.0.0.1:1"}]
    path = str(written(stack, names, rogue, tmp_path, clusters=away))

    code, text = run(capsys, "verify", "--config", path)

    assert (code, "Kafka cluster a" in text) == (2, True), text


def test_a_dead_cluster_is_named_and_hides_nothing_of_the_others(
    stack: Stack, names: Names, rogue: Rogue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = sound(rogue)
    settings = config(stack, names, rogue.topic, 0)
    alive = next(cluster for cluster in settings["clusters"] if cluster["name"] == "a")
    clusters = [{"name": "gone", "bootstrapServers": "127.0.0.1:1"}, alive]
    path = str(written(stack, names, rogue, tmp_path, clusters=clusters))

    began = time.monotonic()
    code, text = run(capsys, "verify", "--config", path)
    assert (code, "NOT PROVED: no anomaly in what was read" in text) == (2, True), text
    assert "not judged: Kafka cluster gone" in text
    assert time.monotonic() - began < 45, "the dead one has 4 s"
    code, text = run(capsys, "streams", "history", rogue.stream, "--config", path)
    assert (code, "not shown: Kafka cluster gone" in text, "3 commits" in text) == (2, True, True), text

    doubled = replace(last.tables[0], in_flight=sound_block(last, crc=8))
    rogue.owner(replace(last, seq=4, tables=(doubled, last.tables[1])))
    code, text = run(capsys, "verify", "--config", path)
    assert (code, "NOT CLEAN" in text, "not judged" in text) == (1, True, True), text


def test_history_shows_what_each_commit_changed(
    stack: Stack, names: Names, rogue: Rogue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(stack, names, rogue, tmp_path))
    sound(rogue)
    rogue.commit(5, "")

    code, text = run(capsys, "streams", "history", rogue.stream, "--config", path, "--json")

    assert code == 0
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["number"] for line in lines] == ["1", "2", "3", ""]
    assert lines[1]["changes"] == [
        "db.clicks [0, 19] acknowledged",
        "db.clicks [20, 29] in flight, 10 messages",
    ]
    assert "table 2 lags from 35, 2 pending" in lines[2]["changes"]
    assert lines[3]["findings"][0].startswith("foreign [5, 5]")

    code, text = run(capsys, "streams", "history", "*/*/0", "--config", path)
    assert (code, "4 commits" in text) == (0, True), text
