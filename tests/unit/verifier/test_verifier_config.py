"""The verifier's configuration file: the documented example loads, faults are named, the reference is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blockhouse.config.describe import leaf_fields
from blockhouse.config.load import ConfigError, load_as, parse_as
from blockhouse.config.verifier import VerifierConfig

DOCUMENT = (Path(__file__).parents[3] / "docs" / "verifier.md").read_text()
SMALLEST = 'pipeline: events\ngroups: [g]\nclusters: [{name: a, bootstrapServers: "k:9092"}]\n'


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_as(VerifierConfig, text)
    return caught.value.problems


def test_the_documented_example_loads(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    assert example is not None
    (tmp_path / "verifier.yaml").write_text(example[1])

    config = load_as(VerifierConfig, tmp_path / "verifier.yaml")

    assert config.groups == ("events-*",)
    assert config.checkpoint_topic == "blockhouse-verifier.events"


def test_every_field_has_a_meaning() -> None:
    assert [field.path for field in leaf_fields(VerifierConfig) if not field.meaning] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALLEST.replace("[g]", "[]"), "groups: list of 0: expected list of text, not empty"),
        (SMALLEST + "skewWindw: 1\n", "skewWindw: 1: unknown field, did you mean skewWindow?"),
        (SMALLEST + "checkpoint: {interval: 0}\n", "checkpoint.interval: 0: expected duration: seconds, or with ms,"),
        (SMALLEST + "admin: {host: 0.0.0.0}\n", "admin: mapping of host: a token is required"),
        (SMALLEST + "kubernetesEvents: {name: x}\n", "kubernetesEvents.namespace: missing: expected text, not empty"),
    ],
)
def test_a_fault_states_what_was_expected(text: str, message: str) -> None:
    (problem,) = problems(text)

    assert problem.startswith(message)
