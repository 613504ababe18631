"""A mirror's configuration file: the documented example loads, and every fault names its field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blockhouse.config.describe import leaf_fields
from blockhouse.config.load import ConfigError, load_as, parse_as
from blockhouse.config.mirror import MirrorConfig

DOCUMENT = (Path(__file__).parents[3] / "docs" / "mirror.md").read_text()
SMALLEST = (
    "name: m\nsource: {name: a, bootstrapServers: 'a:9092'}\ntarget: {name: b, bootstrapServers: 'b:9092,c:9092'}\n"
)


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_as(MirrorConfig, text)
    return caught.value.problems


def topics(text: str) -> MirrorConfig:
    return parse_as(MirrorConfig, f"{SMALLEST}topics: {text}\n")


def test_the_documented_examples_load(tmp_path: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    assert len(examples) >= 2
    for number, text in enumerate(examples):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        load_as(MirrorConfig, file)


def test_the_whole_example_has_every_section_with_its_default() -> None:
    """It is copied from: what it shows as default is the default."""
    example = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)[1]
    shown = parse_as(MirrorConfig, example)
    default = parse_as(MirrorConfig, SMALLEST)

    for name in ("target_topics", "start", "delivery", "on_gap", "in_flight", "commit_interval", "compression", "load"):
        assert getattr(shown, name) == getattr(default, name), name
    assert {re.sub("_(.)", lambda m: m[1].upper(), name) for name in MirrorConfig.model_fields} <= set(
        re.findall(r"^(\w+):", example, re.MULTILINE)
    )


def test_every_field_has_a_meaning() -> None:
    assert [field.path for field in leaf_fields(MirrorConfig) if not field.meaning] == []


def test_the_reference_has_the_mirrors_own_defaults() -> None:
    """Sections that others have too: what holds without them is what the mirror gives them."""
    fields = {field.path: field.default for field in leaf_fields(MirrorConfig)}

    assert (fields["spark.master"], fields["admin.port"], fields["load.capacity"]) == ("local[4]", "8081", "10Mi")


def test_the_required_fields_are_enough() -> None:
    config = parse_as(MirrorConfig, SMALLEST)

    assert (config.group, config.delivery, config.start, config.on_gap) == (
        "km-m",
        "EffectivelyOnce",
        "Earliest",
        "Stop",
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("name: M\n", "name: 'M': expected text, matching"),
        ("delivery: ExactlyOnce\n", "delivery: 'ExactlyOnce': ExactlyOnce is not there yet: take EffectivelyOnce"),
        ("onGap: skip\n", "onGap: 'skip': expected `Stop` or `Skip`"),
        ("start: latest\n", "start: 'latest': expected `Earliest` or `Latest`"),
        ("inFlight: 100\n", "inFlight: 100: expected size: bytes, or with Ki, Mi, Gi or Ti, >= 1Mi"),
        ("commitInterval: 1ms\n", "commitInterval: 0.001: expected duration: seconds"),
        ("compression: brotli\n", "compression: 'brotli': expected `none`"),
        ("topics: {include: ['events-(']}\n", "topics.include[0]: 'events-(': 'events-(' is no regular expression"),
        ("topics: {exclude: ['a', '*']}\n", "topics.exclude[1]: '*': '*' is no regular expression"),
        (
            "topics: {rename: {prefix: 'a/'}}\n",
            "topics.rename.prefix: 'a/': expected text, at most 100 characters",
        ),
        ("topics: {includes: [a]}\n", "topics.includes: list of 1: unknown field, did you mean include or exclude?"),
        (
            "targetTopics: {replicationFactor: 17}\n",
            "targetTopics.replicationFactor: 17: expected integer, >= -1, <= 16",
        ),
        (
            "targetTopics: {sync: [message.timestamp.type]}\n",
            "targetTopics: mapping of sync: message.timestamp.type cannot",
        ),
        ("topics: {include: events}\n", "topics.include: 'events': expected list of text, at most 1000 entries"),
        ("load: {capacity: 5MB}\n", "load.capacity: '5MB': expected size"),
        (
            "load: {utilization: 70}\n",
            "load.utilization: 70: expected part of a whole: a number, or with %, >= 1%",
        ),
        ("load: {minTasks: 5, maxTasks: 4}\n", "load: mapping of minTasks, maxTasks: minTasks 5 is above maxTasks 4"),
        ("rebalance: {cooldown: soon}\n", "rebalance.cooldown: 'soon': expected duration"),
        ("load: {utilization: 170%}\n", "load.utilization: 1.7: expected part of a whole"),
        ("rebalance: {maxMoved: 2}\n", "rebalance.maxMoved: 2: expected part of a whole"),
        ("rebalance: {quietHours: [nights]}\n", "rebalance.quietHours[0]: 'nights': 'nights' is not like"),
        ("spark: {master: 'k8s://https://k'}\n", "spark: mapping of master: a master k8s:// starts executors as pods"),
        (
            "spark: {master: 'k8s://https://k', conf: {spark.kubernetes.container.image: i}}\n",
            "spark: mapping of master, conf: a master k8s:// starts executors as pods, for which conf needs "
            "spark.executor.instances",
        ),
        ("admin: {host: 0.0.0.0}\n", "admin: mapping of host: a token is required"),
    ],
)
def test_a_fault_names_its_field_and_what_was_expected(more: str, message: str) -> None:
    text = SMALLEST.replace("name: m\n", "") if more.startswith("name") else SMALLEST

    (problem,) = problems(text + more)

    assert problem.startswith(message)


def test_executors_in_pods_need_an_address_of_the_driver() -> None:
    conf = "{spark.kubernetes.container.image: i, spark.executor.instances: '2'}"
    pods = f"spark: {{master: 'k8s://https://k', conf: {conf}}}\n"

    assert "executors in pods do not reach gate.host 127.0.0.1" in problems(SMALLEST + pods)[0]
    assert parse_as(MirrorConfig, f"{SMALLEST}{pods}gate: {{host: 10.1.2.3}}\n").spark.in_pods


@pytest.mark.parametrize("missing", ["name", "source", "target"])
def test_a_missing_field_is_named(missing: str) -> None:
    text = "".join(line for line in SMALLEST.splitlines(keepends=True) if not line.startswith(missing))

    assert problems(text)[0].startswith(f"{missing}: missing")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{name: b", "{name: a", "source and target are both called 'a'"),
        ("'b:9092,c:9092'", "'b:9092,A:9092'", "source and target share the server a:9092"),
    ],
)
def test_a_cluster_is_not_mirrored_into_itself(old: str, new: str, message: str) -> None:
    assert message in problems(SMALLEST.replace(old, new))[0]


def test_names_match_as_a_whole_and_exclusion_counts_more() -> None:
    config = topics("{include: ['events-.*', audit], exclude: ['.*-tmp']}").topics

    assert [name for name in ("events-1", "my-events-1", "audit", "audit2", "events-tmp") if config.matches(name)] == [
        "events-1",
        "audit",
    ]


def test_without_include_everything_but_kafkas_own_is_mirrored() -> None:
    config = topics("{exclude: [secret]}").topics

    assert config.matches("events")
    assert not config.matches("secret")
    assert not config.matches("__consumer_offsets")
    assert not topics("{include: ['.*']}").topics.matches("__transaction_state"), "not even when it is included"


def test_topics_keep_their_names_unless_they_are_renamed() -> None:
    assert topics("{}").topics.rename.target_of("events") == "events"
    assert topics("{rename: {prefix: 'a.', suffix: .copy}}").topics.rename.target_of("events") == "a.events.copy"
