"""`blockhouse topics create` where the cluster does not show everything; on real clusters: `tests/integration`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from blockhouse.errors import Permanent
from blockhouse.fleet import create_cli
from blockhouse.fleet.cli import app
from blockhouse.fleet.topics import ClusterSeen, TopicStep


def test_topics_whose_settings_may_not_be_read_are_not_taken_for_topics_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[TopicStep] = []

    def observe(_fleet: object, topics: Sequence[str]) -> ClusterSeen:
        if len(topics) == 1:
            raise Permanent("DescribeConfigs on topic two is missing", reason="TopicAuthorizationFailedError")
        return ClusterSeen({}, {}, {}, frozenset({"two"}))

    monkeypatch.setattr(create_cli.topic_steps, "observe", observe)
    monkeypatch.setattr(create_cli.topic_steps, "carry_out", lambda _fleet, steps: done.extend(steps))
    arguments = ["create", "one", "two", "--partitions", "1", "--bootstrap-server", "a:1", "--execute"]

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 1
    assert "DescribeConfigs on topic two is missing" in result.stderr
    assert done == []
