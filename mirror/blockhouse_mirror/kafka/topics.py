"""Topics of both clusters as the mirror sees them; the target's are created, grown and kept like the source's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from blockhouse.config.mirror import MirrorConfig
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka.copies import copies

CLEANUP = "cleanup.policy"
HEADERS_ROOM = 4096
"""Bytes that `max.message.bytes` of the target is above the source's: the header of the hop comes on top."""

LETTERS = {"cleanup.policy": "delete", "retention.ms": str(7 * 86400 * 1000), "max.message.bytes": str(16 << 20)}
"""Settings of a topic of dead letters that the mirror creates: records of any topic up to that size have room."""


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    """A topic of the source and its copy. One that was created again has another id."""

    name: str
    topic_id: str
    partitions: int
    target: str
    target_id: str

    @property
    def all_partitions(self) -> Iterable[Key]:
        """Its partitions in the source."""
        return (Key(self.name, number) for number in range(self.partitions))


@dataclass(frozen=True, slots=True)
class Discovery:
    """What there is now. `problems` are by topic of the source: what keeps its target from being like it. `copies` are
    topics of the source that are left out, each with the name of the target's topic that it is a copy of."""

    source_cluster: str
    target_cluster: str
    topics: tuple[MirroredTopic, ...]
    problems: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)


class MirrorTopics:
    """Blocking; used by one thread at a time."""

    def __init__(self, config: MirrorConfig) -> None:
        self._config = config
        self._source, self._target = KafkaFleet(config.source), KafkaFleet(config.target)
        self._copies: dict[tuple[str, str], str] = {}  # ids of originals, by name and id: what is a copy stays one

    def discover(self) -> Discovery:
        """Let the target have every topic with its partitions and settings (M6), and look. Raises Retryable or
        Permanent when one of the clusters does not answer at all."""
        counts = self._counts()
        existing = Counter(key.topic for key in self._target.partitions())
        new = [name for name in counts if self._name(name) not in existing]
        try:
            left_out, problems = self._left_out(new), {}
        except Retryable as error:  # they are created at a later look; what is there already waits for nothing
            left_out, problems = {}, dict.fromkeys(new, str(error))
        kept = {name: count for name, count in counts.items() if name not in left_out and name not in problems}
        problems |= self._keep(kept, existing) | self._taken()
        return replace(self.look(), problems=problems, copies=left_out)

    def look(self) -> Discovery:
        """What there is, changing nothing. Raises as `discover`."""
        source_cluster, target_cluster = self._source.cluster_id(), self._target.cluster_id()
        ids, counts = self._source.topic_ids(), self._counts()
        target_ids = self._target.topic_ids()
        target_counts = Counter(key.topic for key in self._target.partitions())
        topics = tuple(
            # What the target has not grown to yet is not mirrored yet.
            MirroredTopic(name, ids[name], min(count, target_counts[target]), target, target_ids[target])
            for name, count in sorted(counts.items())
            if (target := self._name(name)) in target_ids and name in ids
        )
        return Discovery(source_cluster, target_cluster, topics)

    def compacted(self, found: Discovery) -> dict[str, tuple[bool, bool]]:
        """By topic of the source, whether it and its copy are compacted now."""
        sources, targets = ([topic.name for topic in found.topics], [topic.target for topic in found.topics])
        at_source, at_target = _compacted(self._source, sources), _compacted(self._target, targets)
        return {topic.name: (topic.name in at_source, topic.target in at_target) for topic in found.topics}

    def dead_letters(self) -> list[Key]:
        """Partitions of the topic of dead letters, whether it is in use now or was before."""
        return [key for key in self._target.partitions() if key.topic == self._config.own_topics[0]]

    def close(self) -> None:
        """Close both clients."""
        self._source.close()
        self._target.close()

    def _counts(self) -> dict[str, int]:
        """Partitions of each topic of the source that is mirrored."""
        matches, own = self._config.topics.matches, self._config.own_topics
        keys = (key for key in self._source.partitions() if matches(key.topic))
        return dict(Counter(key.topic for key in keys if self._name(key.topic) not in own))

    def _taken(self) -> dict[str, str]:
        """Topics of the source that a name of the configuration keeps from being mirrored."""
        given = self._config.dead_letters.topic
        names = {key.topic for key in self._source.partitions()} if given else set()
        text = f"{given} on the target is for dead letters: give deadLetters.topic another name, or exclude this topic"
        return {name: text for name in names if self._name(name) == given and self._config.topics.matches(name)}

    def _name(self, topic: str) -> str:
        """Of the copy of a topic of the source."""
        return self._config.topics.rename.target_of(topic)

    def _left_out(self, topics: list[str]) -> dict[str, str]:
        """Those of these topics of the source, none of which the target has, that are copies of topics of the target:
        creating them would have no end. One that the target has is mirrored: who made it meant it. So is a copy whose
        original is gone, as of a topic that is mirrored both ways and was deleted at one end. Raises Retryable."""
        if not topics:
            return {}
        ids = self._source.topic_ids()
        unknown = [name for name in topics if (name, ids.get(name, "")) not in self._copies]
        if unknown:
            found = copies(self._config.source, unknown, self._target.cluster_id())
            self._copies |= {(name, ids.get(name, "")): original for name, original in found.items()}
        originals = {topic_id: name for name, topic_id in self._target.topic_ids().items()}
        known = {name: originals.get(self._copies.get((name, ids.get(name, "")), "")) for name in topics}
        return {name: original for name, original in known.items() if original is not None}

    def _keep(self, counts: dict[str, int], existing: Mapping[str, int]) -> dict[str, str]:
        problems: dict[str, str] = {}
        settings = self._source.topic_configs(counts)
        targets = {name: self._name(name) for name in counts}
        present = self._target.topic_configs([target for target in targets.values() if target in existing])
        if (letters := self._config.dead_letter_topic) and letters not in existing:
            try:
                self._target.create_topic(letters, 1, self._config.target_topics.replication_factor, LETTERS)
            except BlockhouseError as error:
                problems[letters] = str(error)
        for name, count in counts.items():
            target, desired = targets[name], self._synced(settings.get(name, {}))
            try:
                if target not in existing:
                    self._target.create_topic(target, count, self._config.target_topics.replication_factor, desired)
                    continue
                if existing[target] < count:
                    self._target.add_partitions(target, count)
                changed = {key: value for key, value in desired.items() if present.get(target, {}).get(key) != value}
                if changed:
                    self._target.change_topic(target, changed)
            except BlockhouseError as error:
                problems[name] = str(error)
        return problems

    def _synced(self, settings: dict[str, str]) -> dict[str, str]:
        desired = {key: settings[key] for key in self._config.target_topics.sync if key in settings}
        if (limit := desired.get("max.message.bytes")) is not None:
            desired["max.message.bytes"] = str(int(limit) + HEADERS_ROOM)
        return desired


def _compacted(cluster: KafkaFleet, topics: Collection[str]) -> set[str]:
    found = cluster.topic_settings(topics, [CLEANUP])
    return {topic for topic, given in found.items() if CLEANUP in given and "compact" in given[CLEANUP].value}
