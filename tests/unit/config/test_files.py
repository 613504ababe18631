"""Secrets and certificates that a configuration refers to: all of them are found, and a missing one is named."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from blockhouse import cli
from blockhouse.config.files import files_of, unreadable
from blockhouse.config.load import parse
from blockhouse.errors import Retryable

TEXT = """
pipeline: p
shard: "01"
replica: r1
kafka:
  topic: t
  group: g
  clusters:
    - {{name: a, bootstrapServers: "k:1", tls: {{caFile: {folder}/ca, certFile: {folder}/cert, keyFile: {folder}/key,
       keyPassword: {{file: {folder}/key-password}}}}}}
    - {{name: b, bootstrapServers: "l:1", sasl: {{mechanism: PLAIN, username: u, password: {{file: {folder}/kafka}}}}}}
clickhouse: {{password: {{file: {folder}/clickhouse}}, tls: {{caFile: {folder}/clickhouse-ca}}}}
zookeeper: {{servers: "z:1", username: u, password: {{file: {folder}/zookeeper}}}}
suspendFile: {folder}/suspend
"""
NAMES = ["ca", "cert", "key", "key-password", "kafka", "clickhouse", "clickhouse-ca", "zookeeper"]


def test_every_file_of_a_secret_or_of_tls_is_found_and_no_other(tmp_path: Path) -> None:
    settings = parse(TEXT.format(folder=tmp_path))

    assert list(files_of(settings)) == [tmp_path / name for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_the_one_that_cannot_be_read_is_named_with_the_cause(tmp_path: Path, name: str) -> None:
    settings = parse(TEXT.format(folder=tmp_path))
    for each in NAMES:
        (tmp_path / each).write_text("secret")
    assert unreadable(settings) == ""

    (tmp_path / name).unlink()
    problem = f"file {tmp_path / name} of the configuration cannot be read: {{}}; put it back"
    assert unreadable(settings) == problem.format("No such file or directory")
    (tmp_path / name).mkdir()
    assert unreadable(settings) == problem.format("Is a directory")


def test_an_empty_password_counts_as_a_missing_one_before_a_client_of_kafka_is_created(tmp_path: Path) -> None:
    """A file that is being replaced may be seen empty; the client itself would refuse its settings for good."""
    settings = parse(TEXT.format(folder=tmp_path))
    for each in NAMES:
        (tmp_path / each).write_text("secret")
    cluster = settings.kafka.clusters[1]
    assert cluster.client_config()["sasl.password"] == "secret"

    (tmp_path / "kafka").write_text("\n")

    with pytest.raises(Retryable, match=f"secret file {tmp_path}/kafka, the password of Kafka cluster b, is empty"):
        cluster.client_config()


def test_a_variable_that_is_not_set_is_the_first_and_only_error_and_comes_before_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CH_PASSWORD", raising=False)
    for name in NAMES:
        (tmp_path / name).write_text("secret")
    config = tmp_path / "r1.yaml"
    config.write_text(TEXT.format(folder=tmp_path).replace(f"{{file: {tmp_path}/clickhouse}}", "{env: CH_PASSWORD}"))

    def started(main: Coroutine[Any, Any, int]) -> int:
        main.close()
        pytest.fail("it starts")

    monkeypatch.setattr("blockhouse_aggregator.commands.aggregator.asyncio.run", started)
    with pytest.raises(SystemExit) as ended:
        cli.main(["aggregator", "run", "--config", str(config)])

    assert ended.value.code == 2
    output = capsys.readouterr()
    assert output.err.splitlines()[1:] == ["  environment variable CH_PASSWORD is not set"]
    assert output.out == "", "it has not even logged that it starts"


def test_a_check_warns_of_what_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CH_PASSWORD", raising=False)
    for name in NAMES[1:]:
        (tmp_path / name).write_text("secret")
    config = tmp_path / "r1.yaml"
    config.write_text(TEXT.format(folder=tmp_path).replace(f"{{file: {tmp_path}/clickhouse}}", "{env: CH_PASSWORD}"))

    with pytest.raises(SystemExit) as ended:
        cli.main(["config", "check", str(config)])

    output = capsys.readouterr()
    assert ended.value.code == 0
    assert output.err.splitlines() == [
        "warning: environment variable CH_PASSWORD is not set",
        f"warning: file {tmp_path / 'ca'} of the configuration cannot be read: No such file or directory",
    ]
    monkeypatch.setenv("CH_PASSWORD", "secret")
    (tmp_path / "ca").write_text("secret")
    with pytest.raises(SystemExit):
        cli.main(["config", "check", str(config)])
    assert capsys.readouterr().err == ""
