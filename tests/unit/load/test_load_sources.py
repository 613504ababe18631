"""The file as a source, the records of Cruise Control, the settings, and the command without a cluster."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.load.cli import app
from blockhouse.fleet.load.options import chosen
from blockhouse.fleet.load.settings import StaticSettings
from blockhouse.fleet.load.static import StaticSource
from blockhouse.fleet.load.view import byte_rate
from blockhouse.load.cruise_control import TopicNames, Undecodable, decode_metric, decode_partition_sample
from blockhouse.load.model import Sample
from blockhouse.placement.model import InvalidInput, TopicPartition

FILE = """
clusterId: abc
partitions: {clicks: {0: {bytes: 10M, messages: 5000}, 1: {bytes: 50Ki}}}
topics: {orders: {bytes: 2Mi}}
brokers: {1: {tx: 80M, rx: 40M}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "load.yaml"
    path.write_text(FILE)
    return path


def test_a_file_gives_what_it_holds(file: Path) -> None:
    sample = StaticSource(StaticSettings(file=file)).sample()
    loads = {key: (load.bytes, load.messages) for key, load in sample.partitions.items()}
    assert loads == {TopicPartition("clicks", 0): (10e6, 5000), TopicPartition("clicks", 1): (50 * 1024, None)}
    assert (sample.topics["orders"].bytes, sample.brokers[1].tx) == (2 << 20, 80e6)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("partitions: {clicks: {0: {bytes: 10}}}", "has no unit"),
        ("partitions: {clicks: {0: {bytes: -1M}}}", "is no rate"),
        ("partitions: {clicks: {0: {byte: 1M}}}", "partitions.clicks.0"),
        ("topics: [", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(file: Path, text: str, named: str) -> None:
    file.write_text(text)
    with pytest.raises(Permanent, match=named):
        StaticSource(StaticSettings(file=file)).sample()


def test_the_command_reads_a_file_without_any_cluster(file: Path) -> None:
    shown = CliRunner().invoke(app, ["show", "--file", str(file), "--json"])
    assert json.loads(shown.stdout)["partitions"]["clicks"]["0"]["bytes"] == 10e6
    table = CliRunner().invoke(app, ["show", "--file", str(file), "--limit", "1"])
    assert "10 MB/s" in table.output
    assert "50" not in table.output.split("share")[1].split("\n")[1]
    explained = CliRunner().invoke(app, ["explain", "orders", "--file", str(file)])
    assert "even share of their topic" in explained.output


def test_an_expression_that_matches_nothing_is_an_error_with_names(file: Path) -> None:
    result = CliRunner().invoke(app, ["show", "--file", str(file), "--topics", "nothing"])
    assert isinstance(result.exception, InvalidInput)
    assert "clicks, orders" in str(result.exception)


def test_watching_outlives_a_source_that_does_not_answer(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Retryable | None] = [Retryable("no broker is there"), None]
    read = StaticSource.sample

    def sample(source: StaticSource) -> Sample:
        if (error := answers.pop(0)) is not None:
            raise error
        return read(source)

    monkeypatch.setattr(StaticSource, "sample", sample)
    monkeypatch.setattr("time.sleep", lambda _: None)
    result = CliRunner().invoke(app, ["watch", "--file", str(file), "--count", "1"])
    assert result.exit_code == 0, result.output
    assert "no sample: no broker is there" in result.stderr
    assert "source static" in result.stdout


def test_watching_ends_when_the_source_can_never_answer(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["watch", "--file", str(tmp_path / "missing.yaml"), "--count", "1"])
    assert isinstance(result.exception, Permanent)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"source": "prometheus"}, "at least its 'url'"),
        ({"source": "static"}, "its 'file'"),
        ({"source": "datadog"}, "source"),
        ({"prometheus_url": "ftp://x"}, "prometheus.url"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, str], named: str) -> None:
    given = {"source": None, "config": None, "prometheus_url": None, "preset": None, "file": None} | options
    with pytest.raises(InvalidInput, match=named):
        chosen(**given)  # type: ignore[arg-type]


def test_settings_come_from_a_file_and_options_over_it(tmp_path: Path) -> None:
    config = tmp_path / "blockhouse.yaml"
    config.write_text("load: {source: prometheus, prometheus: {url: 'http://a:9090', window: 5m}}")
    settings = chosen(None, config, "http://b:9090", "grafana-cloud", None)
    assert settings.prometheus is not None
    assert (settings.prometheus.url, settings.prometheus.window) == ("http://b:9090", 300)
    assert settings.prometheus.preset == "grafana-cloud"


@given(st.binary(max_size=120))
def test_any_bytes_are_a_record_or_refused(record: bytes) -> None:
    for decode in (decode_metric, decode_partition_sample):
        try:
            decode(record)
        except Undecodable:
            continue


def test_a_cut_record_is_refused() -> None:
    record = struct.pack(">bbbqi", 1, 0, 2, 1000, 7) + struct.pack(">i", 6) + b"clicks" + struct.pack(">d", 5.0)
    assert decode_metric(record).value == 5.0
    for length in range(len(record)):
        with pytest.raises(Undecodable):
            decode_metric(record[:length])


def test_names_with_underscores_find_the_topic_with_dots_unless_two_could_be_meant() -> None:
    names = TopicNames(["a.b", "c.d", "c_d", "e"])
    assert [names.find(name) for name in ("a_b", "c_d", "c.d", "e", "x")] == ["a.b", None, "c.d", "e", None]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0 B/s"), (999, "999 B/s"), (1500, "1.5 kB/s"), (2.5e6, "2.5 MB/s"), (3e12, "3,000 GB/s")],
)
def test_rates_are_written_with_their_unit(value: float | None, text: str) -> None:
    assert byte_rate(value) == text


def test_a_plan_sizes_the_aggregators_and_names_hot_streams(file: Path) -> None:
    file.write_text("partitions: {clicks: {0: {bytes: 10M, messages: 500000}, 1: {bytes: 50Ki}}}")
    result = CliRunner().invoke(app, ["plan", "--file", str(file), "--replicas", "2"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "clicks partition 0 is too much for one core" in result.output
    assert "1 streams have no known rate" in result.output
    assert "1.00" in result.output
