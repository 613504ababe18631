"""The configuration file: what is right is loaded, errors are reported all at once, and the reference is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blockhouse import cli
from blockhouse.config.describe import leaf_fields
from blockhouse.config.load import ConfigError, load, parse, parse_as
from blockhouse.config.pipeline import AggregatorConfig

DOCUMENT = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
SMALLEST = """
pipeline: events
shard: "01"
replica: r1
kafka: {topic: t, group: g, clusters: [{name: a, bootstrapServers: "k:9092"}]}
zookeeper: {servers: "zk:2181"}
"""


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.problems


def test_the_documented_example_loads(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    assert example is not None
    (tmp_path / "aggregator.yaml").write_text(example[1])

    config = load(tmp_path / "aggregator.yaml")

    assert [cluster.name for cluster in config.kafka.clusters] == ["a", "b"]
    assert config.blocks.max_bytes == 10 << 20
    assert config.blocks.tables["db.audit_log"].max_age == 5


def test_every_field_has_a_meaning() -> None:
    assert [field.path for field in leaf_fields(AggregatorConfig) if not field.meaning] == []


def test_required_fields_are_enough() -> None:
    assert parse(SMALLEST).quorum.replicas == 2


def test_every_fault_is_reported_at_once_with_field_value_and_expectation() -> None:
    found = problems(
        SMALLEST.replace("pipeline: events", "pipeline: Events")
        + "windowFlush: soon\nquorum: {replicas: 99}\nunknownTable: ignore\nblocks: {maxBytes: 5x}\n"
    )

    assert found == (
        "pipeline: 'Events': expected text, matching `^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`",
        "quorum.replicas: 99: expected integer, >= 0, <= 16",
        "blocks.maxBytes: '5x': expected size: bytes, or with Ki, Mi, Gi or Ti, >= 1Ki, <= 64Mi",
        "windowFlush: 'soon': expected duration: seconds, or with ms, s, m or h, >= 1ms, <= 24h",
        "unknownTable: 'ignore': expected `wait` or `deadLetter`",
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("windowFlsh: 1\n", "windowFlsh: 1: unknown field, did you mean windowFlush?"),
        ("quorum: {replica: 1}\n", "quorum.replica: 1: unknown field, did you mean replicas?"),
        ("gate: {zzz: 1}\n", "gate.zzz: 1: unknown field, expected one of host, port"),
        ("blocks: {tables: {d.t: {maxRow: 7}}}\n", "blocks.tables.d.t.maxRow: 7: unknown field, did you mean maxRows?"),
        ("quorum: 2\n", "quorum: 2: expected a mapping with replicas, timeout"),
        (
            "admin: {host: 0.0.0.0}\n",
            "admin: mapping of host: a token is required when the admin API listens outside loopback",
        ),
        (
            "admin: {token: {env: A, file: /b}}\n",
            "admin.token: (hidden): give exactly one of 'env' and 'file'",
        ),
    ],
)
def test_a_fault_states_what_to_do(more: str, message: str) -> None:
    assert problems(SMALLEST + more) == (message,)


def test_a_missing_field_is_named() -> None:
    assert "kafka.topic: missing: expected text, not empty, at most 249 characters" in problems(
        SMALLEST.replace("topic: t, ", "")
    )


def test_a_fault_inside_a_list_is_reported_once() -> None:
    assert problems(SMALLEST.replace("bootstrapServers", "bootstrap")) == (
        "kafka.clusters[0].bootstrapServers: missing: expected text, not empty",
        "kafka.clusters[0].bootstrap: 'k:9092': unknown field, did you mean bootstrapServers?",
    )


def test_clusters_of_equal_name_are_refused() -> None:
    twice = SMALLEST.replace(
        '[{name: a, bootstrapServers: "k:9092"}]',
        '[{name: a, bootstrapServers: "k:9092"}, {name: a, bootstrapServers: "l:9092"}]',
    )

    (problem,) = problems(twice)

    assert "names of Kafka clusters must differ: a, a" in problem


@pytest.mark.parametrize(
    "text",
    [
        SMALLEST + "clickhouse: {password: hunter2}\n",
        SMALLEST + "admin: {token: hunter2}\n",
        SMALLEST + "clickhouse: {password: {env: A, value: hunter2}}\n",
        SMALLEST + "clickhouse: {password: hunter2: x}\n",
        SMALLEST.replace("clusters: [", "clusters: 7, x: [").replace("name: a", "name: a, password: hunter2"),
    ],
)
def test_a_secret_written_into_the_file_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "document: None: expected a mapping of fields"),
        ("- a\n", "document: list of 1: expected a mapping of fields"),
        ("a: [\n", "line 2, column 1: "),
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: key 'a' is given twice"),
    ],
)
def test_a_text_that_is_no_configuration_is_refused(text: str, message: str) -> None:
    (problem,) = problems(text)

    assert problem.startswith(message)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        load(tmp_path / "absent.yaml")


def test_check_exits_with_2_and_lists_the_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(SMALLEST + "windowFlush: -1\nquorum: {replicas: 99}\n")

    with pytest.raises(SystemExit) as exit_:
        cli.main(["config", "check", str(file)])

    assert exit_.value.code == 2
    assert f"configuration {file}: 2 errors" in capsys.readouterr().err


def test_check_reports_that_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "right.yaml"
    file.write_text(SMALLEST)

    with pytest.raises(SystemExit) as exit_:
        cli.main(["config", "check", str(file)])

    assert exit_.value.code == 0
    assert "pipeline events, shard 01, replica r1, topic t of Kafka clusters a" in capsys.readouterr().out


def test_fields_of_a_newer_version_can_be_ignored_and_are_named_then() -> None:
    unknown: list[str] = []
    text = SMALLEST + "shiny: {new: 1}\nquorum: {replicas: 3, witnesses: 2}\n"

    config = parse_as(AggregatorConfig, text, unknown=unknown.append)

    assert config.quorum.replicas == 3
    assert sorted(unknown) == ["quorum.witnesses", "shiny"]


def test_other_faults_count_also_when_unknown_fields_are_ignored() -> None:
    with pytest.raises(ConfigError, match=r"quorum\.replicas"):
        parse_as(AggregatorConfig, SMALLEST + "shiny: 1\nquorum: {replicas: many}\n", unknown=lambda _: None)


CLUSTERS = '[{name: a, bootstrapServers: "k:9092"}]'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("topic: t", "topic: t, deadLetterTopic: t", "deadLetterTopic is the topic itself, t"),
        ("topic: t", f"topic: {'t' * 240}", "has a name of more than 249 characters: set deadLetterTopic"),
        ("topic: t", "topic: my topic", "letters, digits"),
        ("topic: t", "topic: ..", "neither `.` nor `..`"),
        ("topic: t", 'topic: t, deadLetterTopic: "a/b"', "letters, digits"),
        ("group: g", 'group: " "', "not blank"),
        ("k:9092", "PLAINTEXT://k:9092", "'PLAINTEXT://k:9092' is not host:port"),
        ("k:9092", "k:9092,l", "'l' is not host:port"),
        ("group: g", "group: g, heartbeatInterval: 10s, sessionTimeout: 6s", "more than a third of sessionTimeout 6 s"),
        (
            CLUSTERS,
            '[{name: a, bootstrapServers: "k:9092, l:9092"}, {name: b, bootstrapServers: "l:9092"}]',
            "clusters a and b are the same, l:9092",
        ),
        (
            CLUSTERS,
            '[{name: a, bootstrapServers: "Kafka.example:9092"}, {name: b, bootstrapServers: "kafka.Example:9092"}]',
            "clusters a and b are the same, kafka.example:9092",
        ),
    ],
)
def test_what_would_harm_later_is_refused_at_once(old: str, new: str, message: str) -> None:
    (problem,) = problems(SMALLEST.replace(old, new))
    assert message in problem


def test_limits_of_a_table_without_its_database_are_refused_not_ignored() -> None:
    (problem,) = problems(SMALLEST + "blocks: {tables: {clicks: {maxRows: 7}}}\n")
    assert "such as `default.clicks`" in problem


def test_a_heartbeat_of_exactly_a_third_and_ipv6_servers_are_fine() -> None:
    text = SMALLEST.replace("group: g", "group: g, heartbeatInterval: 2s, sessionTimeout: 6s")
    assert parse(text.replace("k:9092", "[::1]:9092,k:9092")).kafka.heartbeat_interval == 2
