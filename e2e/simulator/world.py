"""All simulated programs of a cluster: which pods live, what they are to play, which streams each has. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.contract.aggregator import RestartStatus
from e2e.simulator.answers import Play
from e2e.simulator.clickhouse import ClickHouse
from e2e.simulator.groups import Group, Owned
from e2e.simulator.pods import Config
from e2e.simulator.tables import ShardTables

Key = tuple[str, str]
"""Namespace, and name of a replica, a verifier or a mirror."""


@dataclass(frozen=True)
class Program:
    """One simulated aggregator, verifier or mirror; it is as old as its pod."""

    uid: str
    config: Config
    token: str | None
    play: Play = Play.WELL
    elsewhere: str = ""
    """Base URL of a real program that answers in its place."""
    volume: str = ""
    """UID of the claim of its ClickHouse's volume; empty without one."""
    server: ClickHouse | None = None
    """The ClickHouse beside it, where one is played."""


@dataclass
class World:
    """Consumer groups are distinguished by their brokers, as in life: two namespaces with one Kafka share a group."""

    programs: dict[Key, Program] = field(default_factory=dict)
    groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    partitions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Partitions by bootstrap servers and topic."""
    tables: dict[Key, ShardTables] = field(default_factory=dict)
    """By namespace and name of a ClickHouseShardIngest."""
    restarts_seen: dict[str, int] = field(default_factory=dict)
    """By uid of a pod: how many demands to restart there had been when its program started."""
    rebalances: dict[str, int] = field(default_factory=dict)
    """By uid of a pod: how often its mirror was asked for even tasks."""
    down: set[Key] = field(default_factory=set)
    """Programs that restart."""
    volumes: dict[Key, str] = field(default_factory=dict)
    """The volume that each replica had last: on another one there are no tables."""
    suspended: frozenset[Key] = frozenset()
    """Shards, as for `tables`, whose aggregators are configured to own nothing."""

    def put(self, key: Key, program: Program, now: float) -> None:
        self.programs[key] = program
        if isinstance(program.config, AggregatorConfig):
            if self.volumes.setdefault(key, program.volume) != program.volume:
                self.volumes[key] = program.volume
                self.tables_of(key).lose(key[1])
            self.restarts_seen.setdefault(program.uid, self.tables_of(key).restarts)
        self.rebalance(now)

    def drop(self, key: Key, uid: str, now: float) -> None:
        """Forgets a program, unless its pod was replaced already."""
        if key in self.programs and self.programs[key].uid == uid:
            del self.programs[key]
            self.down.discard(key)
            self.rebalance(now)

    def restarts(self, key: Key) -> RestartStatus:
        """The part of an aggregator's status page."""
        return RestartStatus(demanded=self.tables_of(key).restarts, seen=self.restarts_seen[self.programs[key].uid])

    def end(self, key: Key, number: int, now: float) -> bool:
        """Ends an aggregator unless it was started after demand `number`; returns whether it ends."""
        if self.restarts(key).seen >= number:
            return False
        self.down.add(key)
        self.rebalance(now)
        return True

    def begin(self, key: Key, now: float) -> None:
        """Starts again what has ended, if its pod is still there."""
        if key in self.down:
            self.down.discard(key)
            self.restarts_seen[self.programs[key].uid] = self.tables_of(key).restarts
            self.rebalance(now)

    def learn(self, partitions: Mapping[tuple[str, str], int], now: float) -> None:
        """Takes the brokers' word for the number of partitions."""
        if any(self.partitions.get(key) != count for key, count in partitions.items()):
            self.partitions |= partitions
            self.rebalance(now)

    def suspend(self, shard: Key, suspended: bool, now: float) -> None:
        """The content of the file that every aggregator of the shard reads."""
        after = self.suspended | {shard} if suspended else self.suspended - {shard}
        if after != self.suspended:
            self.suspended = after
            self.rebalance(now)

    def is_suspended(self, key: Key) -> bool:
        """Whether the aggregator `key` keeps out of its groups."""
        return self._shard(key) in self.suspended

    def topics(self) -> set[tuple[str, str]]:
        """(bootstrap servers, topic) that some aggregator consumes."""
        return {
            (cluster.bootstrap_servers, config.kafka.topic)
            for config in self._aggregators().values()
            for cluster in config.kafka.clusters
        }

    def owned(self, key: Key) -> list[Owned]:
        """Streams of the aggregator `key`."""
        config = self.programs[key].config
        assert isinstance(config, AggregatorConfig)
        return [
            owned
            for cluster in config.kafka.clusters
            for owned in self._group(cluster.bootstrap_servers, config).of(_member(key))
        ]

    def tables_of(self, key: Key) -> ShardTables:
        """Tables of the shard of the aggregator `key`."""
        return self.tables.setdefault(self._shard(key), ShardTables())

    def streams_of(self, pipeline: str) -> int:
        """Owned streams of a pipeline, wherever its aggregators are."""
        keys = [key for key, config in self._aggregators().items() if config.pipeline == pipeline]
        return sum(len(self.owned(key)) for key in keys)

    def rebalance(self, now: float) -> None:
        members: dict[tuple[str, str], list[str]] = {key: [] for key in self.groups}
        expected: dict[tuple[str, str], dict[tuple[str, str], int]] = {key: {} for key in self.groups}
        for key, config in self._aggregators().items():
            for cluster in config.kafka.clusters:
                group = (cluster.bootstrap_servers, config.kafka.group)
                self.groups.setdefault(group, Group())
                members.setdefault(group, [])
                if not self.is_suspended(key):
                    members[group].append(_member(key))
                count = self.partitions.get((cluster.bootstrap_servers, config.kafka.topic), 0)
                expected.setdefault(group, {})[cluster.name, config.kafka.topic] = count
        for group, state in self.groups.items():
            state.rebalance(members[group], expected[group], now)

    def _shard(self, key: Key) -> Key:
        """The ClickHouseShardIngest of the aggregator `key`."""
        config = self.programs[key].config
        assert isinstance(config, AggregatorConfig)
        return key[0], f"{config.pipeline}-{config.shard}"

    def _group(self, bootstrap: str, config: AggregatorConfig) -> Group:
        return self.groups.setdefault((bootstrap, config.kafka.group), Group())

    def _aggregators(self) -> dict[Key, AggregatorConfig]:
        programs = {key: program for key, program in self.programs.items() if key not in self.down}
        return {k: p.config for k, p in programs.items() if isinstance(p.config, AggregatorConfig)}


def _member(key: Key) -> str:
    return "/".join(key)
