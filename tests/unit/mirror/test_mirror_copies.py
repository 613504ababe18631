"""Topics of the source that are copies of topics of the target: known by positions, and never created once more."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from blockhouse.errors import Permanent, Retryable
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka import copies as module
from blockhouse_mirror.kafka import topics as topics_module
from blockhouse_mirror.kafka.copies import copies
from blockhouse_mirror.kafka.topics import MirrorTopics
from blockhouse_mirror.protocol.position import Position
from tests.unit.mirror.driving import config


def position(cluster: str, topic_id: str) -> Position:
    return Position(cluster, topic_id, 0, 5, -1, "x", 5)


def test_a_copy_is_known_by_a_position_of_a_mirror_from_that_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {
        "km-back": {Key("b.t", 0): position("T", "t-of-target"), Key("mine", 0): position("R", "z")},
        "km-broken": Permanent("no position of ours", reason="PositionUnreadable"),
        "km-other": {Key("b.u", 0): position("T", "u-of-target")},
    }

    def stored(cluster: Any, group: str, keys: Collection[Key]) -> dict[Key, Position]:
        found = groups[group]
        if isinstance(found, Permanent):
            raise found
        return {key: found[key] for key in keys if key in found}

    monkeypatch.setattr(module, "_mirrors", lambda _: list(groups))
    monkeypatch.setattr(module, "read_positions", stored)

    found = copies(config().source, ["b.t", "b.u", "mine", "plain"], "T")

    assert found == {"b.t": "t-of-target", "b.u": "u-of-target"}


class Fleet:
    """One cluster, whose topics have one partition and an id each."""

    def __init__(self, name: str, topics: dict[str, str]) -> None:
        self.name, self.topics = name, topics

    def cluster_id(self) -> str:
        return self.name

    def topic_ids(self) -> dict[str, str]:
        return dict(self.topics)

    def partitions(self) -> dict[Key, None]:
        return {Key(topic, 0): None for topic in self.topics}

    def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        return {}

    def create_topic(self, topic: str, partitions: int, replication: int, settings: Any) -> None:
        self.topics[topic] = f"{topic}-id"


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> tuple[Fleet, Fleet]:
    source, target = Fleet("S", {"t": "1", "b.u": "2"}), Fleet("T", {"u": "u-id"})
    monkeypatch.setattr(topics_module, "KafkaFleet", lambda cluster: source if cluster.name == "a" else target)
    return source, target


def asked(monkeypatch: pytest.MonkeyPatch, found: dict[str, str]) -> list[list[str]]:
    """What is asked of the positions of other mirrors; the answer is always the same."""
    asked: list[list[str]] = []

    def answer(cluster: Any, topics: Collection[str], origin: str) -> dict[str, str]:
        assert (cluster.name, origin) == ("a", "T")
        asked.append(sorted(topics))
        return {topic: original for topic, original in found.items() if topic in topics}

    monkeypatch.setattr(topics_module, "copies", answer)
    return asked


def test_no_topic_is_created_for_a_copy_of_one_of_the_target(
    clusters: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = asked(monkeypatch, {"b.u": "u-id"})
    topics = MirrorTopics(config("topics: {rename: {prefix: 'a.'}}\n"))

    for _ in range(2):
        found = topics.discover()
        assert (found.copies, found.problems) == ({"b.u": "u"}, {})
        assert [topic.name for topic in found.topics] == ["t"]

    assert sorted(clusters[1].topics) == ["a.t", "u"]
    assert questions == [["b.u", "t"]], "what is known is not asked again"


def test_a_copy_whose_name_the_target_has_is_mirrored(
    clusters: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two mirrors of one topic in both directions, and one that a person created."""
    questions = asked(monkeypatch, {"b.u": "u-id"})
    clusters[1].topics |= {"t": "t-id", "b.u": "made by hand"}

    found = MirrorTopics(config()).discover()

    assert [topic.name for topic in found.topics] == ["b.u", "t"]
    assert (found.copies, questions) == ({}, [])


def test_a_copy_whose_original_is_gone_is_mirrored(
    clusters: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a topic that is mirrored both ways, and was deleted at one end."""
    asked(monkeypatch, {"t": "id before it was deleted"})

    found = MirrorTopics(config("topics: {include: [t]}\n")).discover()

    assert ([topic.target for topic in found.topics], found.copies) == (["t"], {})


def test_a_topic_that_was_created_again_is_asked_about_again(
    clusters: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(monkeypatch, {"b.u": "u-id"})
    topics = MirrorTopics(config("topics: {include: ['b.*'], rename: {prefix: 'a.'}}\n"))
    assert topics.discover().copies

    asked(monkeypatch, {})
    clusters[0].topics["b.u"] = "another"

    assert [topic.target for topic in topics.discover().topics] == ["a.b.u"]


def test_while_it_is_not_known_what_is_a_copy_only_new_topics_wait(
    clusters: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(cluster: Any, topics: Collection[str], origin: str) -> dict[str, str]:
        raise Retryable("a broker is gone")

    monkeypatch.setattr(topics_module, "copies", silent)
    clusters[1].topics["a.t"] = "a.t-id"

    found = MirrorTopics(config("topics: {rename: {prefix: 'a.'}}\n")).discover()

    assert [topic.name for topic in found.topics] == ["t"]
    assert (found.problems, found.copies) == ({"b.u": "a broker is gone"}, {})
    assert sorted(clusters[1].topics) == ["a.t", "u"]


def test_nothing_is_mirrored_into_what_the_mirror_keeps_for_itself(
    clusters: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(monkeypatch, {})
    clusters[0].topics = {"km-m-dead-letters": "1"}

    assert MirrorTopics(config("onRefused: DeadLetter\n")).discover().topics == ()
    assert "km-m-dead-letters" in clusters[1].topics, "created for letters"


def test_a_topic_whose_name_was_given_to_letters_is_a_problem(
    clusters: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(monkeypatch, {})

    found = MirrorTopics(config("deadLetters: {topic: t}\n")).discover()

    assert [topic.name for topic in found.topics] == ["b.u"]
    assert "deadLetters.topic" in found.problems["t"]
