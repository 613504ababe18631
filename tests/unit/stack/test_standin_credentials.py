"""Which users and passwords the stand-in takes from the files that a server reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.desired import clickhouse
from blockhouse_operator.desired.parts_login import FILE, PartsLogin, written
from e2e.standin.credentials import credentials
from tests.unit.operator.resources import pipeline

GUARDED = ("spec.clickhouse.managed.interserverSecretRef", {"name": "interserver"})


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(clickhouse.INTERSERVER_PASSWORD, "of-the-environment")
    (tmp_path / "config.d").mkdir()
    (file := tmp_path / "config.xml").write_text(clickhouse.server(resolve(pipeline(GUARDED), 1)))
    return file


def test_without_credentials_no_peer_has_to_log_in(tmp_path: Path) -> None:
    (file := tmp_path / "config.xml").write_text(clickhouse.server(resolve(pipeline(), 1)))
    assert credentials(file) == (("", ""),)


def test_a_pod_without_the_file_has_the_password_of_its_environment(config: Path) -> None:
    assert credentials(config) == (("interserver", "of-the-environment"),)


def test_the_file_takes_its_place_with_all_that_are_accepted(config: Path) -> None:
    (config.parent / "config.d" / FILE).write_text(written(PartsLogin("now", ("before", "later"))))
    assert credentials(config) == tuple(("interserver", word) for word in ("now", "before", "later"))
