"""What was observed of the cluster, for the throttler: answers of a fleet and a source of load as its own values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from blockhouse.fleet.growth import ReplicaOf
from blockhouse.fleet.model import Move, PartitionState, Setting, SettingSource
from blockhouse.load.model import BrokerLoad, Quality, Sample
from blockhouse.placement.model import ReplicaSet, TopicPartition
from blockhouse.throttle.model import ListPlace, Load, MoveSeen, Place, Role


def moving(move: Move, state: PartitionState) -> MoveSeen:
    """A move that Kafka knows."""
    return MoveSeen(move.replicas, move.adding, state.leader, state.in_sync)


def starting(target: ReplicaSet, state: PartitionState) -> MoveSeen:
    """A move that Kafka does not know yet, as it will be in its first moment."""
    arriving = frozenset(target) - frozenset(state.replicas)
    return MoveSeen(tuple(dict.fromkeys((*target, *state.replicas))), arriving, state.leader, state.in_sync)


def rates(settings: Mapping[int, Mapping[str, Setting]]) -> dict[Place, int]:
    """Rates that brokers have set for themselves: a cluster-wide default is not a broker's, nor is its file."""
    return {
        (broker, role): int(found.value)
        for broker, given in settings.items()
        for role in Role
        if (found := given.get(role.rate_setting)) is not None and found.source is SettingSource.BROKER
    }


def lists(settings: Mapping[str, Mapping[str, Setting]]) -> dict[ListPlace, frozenset[str]]:
    """Lists that topics have set for themselves."""
    return {
        (topic, role): frozenset(filter(None, found.value.split(",")))
        for topic, given in settings.items()
        for role in Role
        if (found := given.get(role.list_setting)) is not None and found.source is SettingSource.TOPIC and found.value
    }


def loads(
    sample: Sample, age: float, copied: Collection[ReplicaOf], seen: Mapping[TopicPartition, MoveSeen]
) -> dict[int, Load]:
    """What brokers send and receive, `age` seconds old. One that was seen to copy cannot have sent or received nothing:
    that figure is missing."""
    receives = {broker for _, broker in copied}
    sends = {seen[key].leader for key, _ in copied if key in seen}

    def load(broker: int, found: BrokerLoad) -> Load:
        tx = None if found.tx == 0 and broker in sends else found.tx
        rx = None if found.rx == 0 and broker in receives else found.rx
        return Load(tx, rx, found.moved_out, found.moved_in, age, found.quality is Quality.ESTIMATED)

    return {broker: load(broker, found) for broker, found in sample.brokers.items()}
