"""What the driver knows of each partition: its topic, position, lateness, and why it stands still."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import reduce

from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka.topics import Discovery, MirroredTopic
from blockhouse_mirror.protocol.lag import Lateness
from blockhouse_mirror.protocol.position import Position
from blockhouse_mirror.protocol.takeover import Reason, Stop


@dataclass(slots=True)
class Partition:
    """One partition of the source. `skipped` counts records that were lost to gaps and passed by the user's word."""

    topic: MirroredTopic
    number: int
    position: Position | None = None
    stored: Position | None = None
    """The position that is on the target for certain."""
    lateness: Lateness = field(default_factory=Lateness)
    stop: Stop | None = None
    retry_at: float = 0.0
    careful_until: int = -1
    """The target has refused a batch of it: records below are sent one at a time, so that the one at fault shows."""
    waits: str = ""
    """Why it is not mirrored right now, where that passes by itself; empty when it is."""
    records: int = 0
    bytes: int = 0
    left_out: int = 0
    letters: int = 0
    skipped: int = 0
    gap: tuple[int, int] = (-1, 0)
    """The offset at which a task found a gap last, and how often in a row."""
    generation: int = 0
    """Of the grant that the counters above were last added to."""
    counted: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def key(self) -> Key:
        return Key(self.topic.name, self.number)

    @property
    def target(self) -> Key:
        return Key(self.topic.target, self.number)

    def gap_found(self) -> None:
        """A task was refused at the position: the log does not hold it, or was cut below it."""
        offset = self.position.offset if self.position is not None else -1
        self.gap = (offset, self.gaps_at(offset) + 1)

    def gaps_at(self, offset: int) -> int:
        """How often in a row a gap was found there."""
        return self.gap[1] if self.gap[0] == offset else 0

    def count(self, generation: int, records: int, size: int, left_out: int, letters: int) -> None:
        """What a task has done since its grant."""
        before = self.counted if generation == self.generation else (0, 0, 0, 0)
        self.generation, self.counted = generation, (records, size, left_out, letters)
        self.records += records - before[0]
        self.bytes += size - before[1]
        self.left_out += left_out - before[2]
        self.letters += letters - before[3]


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of records since the driver began."""

    records: int = 0
    bytes: int = 0
    left_out: int = 0
    letters: int = 0
    skipped: int = 0

    def plus(self, partition: Partition) -> Totals:
        """With what the partition has counted."""
        return Totals(**{each.name: getattr(self, each.name) + getattr(partition, each.name) for each in fields(self)})


class Partitions:
    """All partitions of a mirror, by their key in the source."""

    def __init__(self) -> None:
        self._all: dict[Key, Partition] = {}
        self._changed: set[Key] = set()
        self._gone = Totals()
        """Of partitions that are not there any more: a counter must never fall when a topic is deleted."""

    @property
    def totals(self) -> Totals:
        """Of all partitions that were ever there."""
        return reduce(Totals.plus, self, self._gone)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: Key) -> Partition | None:
        return self._all.get(key)

    def seen(self, found: Discovery) -> tuple[list[Partition], list[Partition]]:
        """Take over what was discovered; returns partitions that are new and those that are gone."""
        now = {key: topic for topic in found.topics for key in topic.all_partitions}
        gone = [partition for key, partition in self._all.items() if key not in now]
        new = []
        for key, topic in now.items():
            known = self._all.get(key)
            if known is None:
                known = self._all[key] = Partition(topic, key.partition)
                new.append(known)
            elif (known.topic.topic_id, known.topic.target_id) != (topic.topic_id, topic.target_id):
                known.topic = topic
                if (stop := _replaced(known, topic)) is not None:
                    self.created_again(known, known.stop or stop)
            else:
                known.topic = topic
        for partition in gone:
            self._gone = self._gone.plus(partition)
            del self._all[partition.key]
            self._changed.discard(partition.key)
        return new, gone

    def moved(self, key: Key, position: Position) -> None:
        """The position is to be written."""
        partition = self._all.get(key)
        if partition is not None and position != partition.position:
            partition.position = position
            partition.lateness.reached(position.offset)
            self._changed.add(key)

    def created_again(self, partition: Partition, stop: Stop) -> None:
        """Stop at the position that is stored: what was reported since may be of the other topic."""
        partition.stop = stop
        partition.position = partition.stored
        self._changed.discard(partition.key)

    def unwritten(self) -> Mapping[Key, Position]:
        """Positions that were not written yet, by partition of the target; they count as written from now on."""
        changed, self._changed = self._changed, set()
        found = [self._all[key] for key in changed]
        return {each.target: each.position for each in found if each.position is not None}

    def not_written(self, targets: Iterable[Key]) -> None:
        """Writing these failed: they are to be written again."""
        again = set(targets)
        self._changed.update(key for key, partition in self._all.items() if partition.target in again)


def _replaced(partition: Partition, topic: MirroredTopic) -> Stop | None:
    position = partition.position
    if position is None:
        return None
    if position.topic_id != topic.topic_id:
        return Stop(
            Reason.SOURCE_RECREATED, f"the source topic has id {topic.topic_id} now, it was {position.topic_id}"
        )
    if position.target_topic_id != topic.target_id:
        text = f"the target topic has id {topic.target_id} now, it was {position.target_topic_id}"
        return Stop(Reason.TARGET_RECREATED, text)
    return None
