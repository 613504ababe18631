"""Who owns which streams among simulated aggregators: the part of Kafka's group coordinator that a status shows. Pure.

Times are seconds of any clock that only goes forward; they are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from blockhouse.contract.aggregator import Phase
from blockhouse.streams import StreamId

REPLAY_SECONDS = 0.5
"""How long a stream that changed hands reports REPLAY."""


@dataclass(frozen=True)
class Owned:
    """A stream in the hands of a member."""

    stream: StreamId
    member: str
    epoch: int
    since: float

    def phase(self, now: float) -> Phase:
        """What its owner does at `now`."""
        return Phase.CONSUME if now - self.since >= REPLAY_SECONDS else Phase.REPLAY


@dataclass
class Group:
    """One consumer group, in all its Kafka clusters. Assignment is sticky: a stream moves only when it has to."""

    owned: dict[StreamId, Owned] = field(default_factory=dict)
    epoch: int = 0

    def rebalance(self, members: Iterable[str], partitions: Mapping[tuple[str, str], int], now: float) -> None:
        """Gives every partition of each (cluster, topic) a living member: evenly, and with the fewest moves."""
        alive = sorted(members)
        expected = {
            StreamId(cluster, topic, number)
            for (cluster, topic), count in partitions.items()
            for number in range(count)
        }
        kept = {stream: owned for stream, owned in self.owned.items() if stream in expected and owned.member in alive}
        if not alive:
            self.owned = {}
            return
        for cluster, topic in partitions:
            self._spread(kept, sorted(s for s in expected if (s.cluster, s.topic) == (cluster, topic)), alive, now)
        self.owned = kept

    def _spread(self, kept: dict[StreamId, Owned], streams: list[StreamId], alive: list[str], now: float) -> None:
        most = -(-len(streams) // len(alive))
        load = dict.fromkeys(alive, 0)
        homeless = []
        for stream in streams:
            owner = kept.get(stream)
            if owner is not None and load[owner.member] < most:
                load[owner.member] += 1
            else:
                homeless.append(stream)
        for stream in homeless:
            member = min(alive, key=lambda name: (load[name], name))
            load[member] += 1
            self.epoch += 1
            kept[stream] = Owned(stream, member, self.epoch, now)

    def of(self, member: str) -> list[Owned]:
        return [owned for _, owned in sorted(self.owned.items()) if owned.member == member]
