"""Topics of both clusters as the mirror sees them; those of the target are made, grown and kept like the source's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from blockhouse.config.mirror import MirrorConfig
from blockhouse.errors import BlockhouseError
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.placement.model import TopicPartition as Key

CLEANUP = "cleanup.policy"
HEADERS_ROOM = 4096
"""Bytes that `max.message.bytes` of the target is above the source's: the header of the hop comes on top."""


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
    """What there is now. `problems` are by topic of the source: what keeps its target from being like it."""

    source_cluster: str
    target_cluster: str
    topics: tuple[MirroredTopic, ...]
    problems: Mapping[str, str] = field(default_factory=dict)


class MirrorTopics:
    """Blocking; used by one thread at a time."""

    def __init__(self, config: MirrorConfig) -> None:
        self._config = config
        self._source, self._target = KafkaFleet(config.source), KafkaFleet(config.target)

    def discover(self) -> Discovery:
        """Let the target have every topic with its partitions and settings (M6), and look. Raises Retryable or
        Permanent when one of the clusters does not answer at all."""
        problems = self._keep(self._counts())
        return replace(self.look(), problems=problems)

    def look(self) -> Discovery:
        """What there is, changing nothing. Raises as `discover`."""
        source_cluster, target_cluster = self._source.cluster_id(), self._target.cluster_id()
        ids, counts = self._source.topic_ids(), self._counts()
        target_ids = self._target.topic_ids()
        target_counts = Counter(key.topic for key in self._target.partitions())
        rename = self._config.topics.rename.target_of
        topics = tuple(
            # What the target has not grown to yet is not mirrored yet.
            MirroredTopic(name, ids[name], min(count, target_counts[target]), target, target_ids[target])
            for name, count in sorted(counts.items())
            if (target := rename(name)) in target_ids and name in ids
        )
        return Discovery(source_cluster, target_cluster, topics)

    def compacted(self, found: Discovery) -> dict[str, tuple[bool, bool]]:
        """By topic of the source, whether it and its copy are compacted now."""
        sources, targets = ([topic.name for topic in found.topics], [topic.target for topic in found.topics])
        at_source, at_target = _compacted(self._source, sources), _compacted(self._target, targets)
        return {topic.name: (topic.name in at_source, topic.target in at_target) for topic in found.topics}

    def close(self) -> None:
        self._source.close()
        self._target.close()

    def _counts(self) -> dict[str, int]:
        """Partitions of each topic of the source that is mirrored."""
        return dict(Counter(key.topic for key in self._source.partitions() if self._config.topics.matches(key.topic)))

    def _keep(self, counts: dict[str, int]) -> dict[str, str]:
        problems: dict[str, str] = {}
        settings = self._source.topic_configs(counts)
        existing = Counter(key.topic for key in self._target.partitions())
        targets = {name: self._config.topics.rename.target_of(name) for name in counts}
        present = self._target.topic_configs([target for target in targets.values() if target in existing])
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
