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
GroupKey = tuple[str, str]
"""Bootstrap servers, and name of a consumer group."""


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
    groups: dict[GroupKey, Group] = field(default_factory=dict)
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
    _by_group: dict[GroupKey, set[Key]] = field(default_factory=dict)
    """The aggregators of each group: of thousands of groups a change of one program is to touch only its own."""

    def put(self, key: Key, program: Program, now: float) -> None:
        former = self._leave(key)
        self.programs[key] = program
        for group in self._groups_of(key):
            self._by_group.setdefault(group, set()).add(key)
        if isinstance(program.config, AggregatorConfig):
            if self.volumes.setdefault(key, program.volume) != program.volume:
                self.volumes[key] = program.volume
                self.tables_of(key).lose(key[1])
            self.restarts_seen.setdefault(program.uid, self.tables_of(key).restarts)
        self._rebalance(former | self._groups_of(key), now)

    def drop(self, key: Key, uid: str, now: float) -> None:
        """Forgets a program, unless its pod was replaced already."""
        if key in self.programs and self.programs[key].uid == uid:
            former = self._leave(key)
            del self.programs[key]
            self.down.discard(key)
            self._rebalance(former, now)

    def restarts(self, key: Key) -> RestartStatus:
        """The part of an aggregator's status page."""
        return RestartStatus(demanded=self.tables_of(key).restarts, seen=self.restarts_seen[self.programs[key].uid])

    def end(self, key: Key, number: int, now: float) -> bool:
        """Ends an aggregator unless it was started after demand `number`; returns whether it ends."""
        if self.restarts(key).seen >= number:
            return False
        self.down.add(key)
        self._rebalance(self._groups_of(key), now)
        return True

    def begin(self, key: Key, now: float) -> None:
        """Starts again what has ended, if its pod is still there."""
        if key in self.down:
            self.down.discard(key)
            self.restarts_seen[self.programs[key].uid] = self.tables_of(key).restarts
            self._rebalance(self._groups_of(key), now)

    def learn(self, partitions: Mapping[tuple[str, str], int], now: float) -> None:
        """Takes the brokers' word for the number of partitions."""
        changed = {topic for topic, count in partitions.items() if self.partitions.get(topic) != count}
        if changed:
            self.partitions |= partitions
            self._rebalance({group for group in self._by_group if not changed.isdisjoint(self._topics_of(group))}, now)

    def suspend(self, shard: Key, suspended: bool, now: float) -> None:
        """The content of the file that every aggregator of the shard reads."""
        after = self.suspended | {shard} if suspended else self.suspended - {shard}
        if after != self.suspended:
            self.suspended = after
            members = [key for key in self._aggregators() if self._shard(key) == shard]
            self._rebalance({group for key in members for group in self._groups_of(key)}, now)

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
        config = self._config(key)
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

    def _rebalance(self, groups: set[GroupKey], now: float) -> None:
        for group in groups:
            members, expected = [], {}
            for key in sorted(self._by_group[group] - self.down):
                config = self._config(key)
                if not self.is_suspended(key):
                    members.append(_member(key))
                for cluster in config.kafka.clusters:
                    if cluster.bootstrap_servers == group[0]:
                        count = self.partitions.get((cluster.bootstrap_servers, config.kafka.topic), 0)
                        expected[cluster.name, config.kafka.topic] = count
            self.groups.setdefault(group, Group()).rebalance(members, expected, now)

    def _leave(self, key: Key) -> set[GroupKey]:
        """Takes the program out of its groups, which are returned."""
        former = self._groups_of(key) if key in self.programs else set()
        for group in former:
            self._by_group[group].discard(key)
        return former

    def _groups_of(self, key: Key) -> set[GroupKey]:
        config = self.programs[key].config
        if not isinstance(config, AggregatorConfig):
            return set()
        return {(cluster.bootstrap_servers, config.kafka.group) for cluster in config.kafka.clusters}

    def _topics_of(self, group: GroupKey) -> set[tuple[str, str]]:
        """(bootstrap servers, topic) of the members."""
        return {(group[0], self._config(key).kafka.topic) for key in self._by_group[group]}

    def _config(self, key: Key) -> AggregatorConfig:
        config = self.programs[key].config
        assert isinstance(config, AggregatorConfig)
        return config

    def _shard(self, key: Key) -> Key:
        """The ClickHouseShardIngest of the aggregator `key`."""
        config = self._config(key)
        return key[0], f"{config.pipeline}-{config.shard}"

    def _group(self, bootstrap: str, config: AggregatorConfig) -> Group:
        return self.groups.setdefault((bootstrap, config.kafka.group), Group())

    def _aggregators(self) -> dict[Key, AggregatorConfig]:
        programs = {key: program for key, program in self.programs.items() if key not in self.down}
        return {k: p.config for k, p in programs.items() if isinstance(p.config, AggregatorConfig)}


def _member(key: Key) -> str:
    return "/".join(key)
