"""Secrets and certificates that a configuration refers to: all of them are found, and a missing one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockhouse.config.files import files_of, unreadable
from blockhouse.config.load import parse

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
