"""One Kafka cluster: logs, and a group coordinator that fences by member id and generation, never by ownership.

Static members, cooperative assignment: a partition moves when its owner has given it up in its own callback, or has
been silent for the session time-out. A commit is judged when it arrives; one whose reply is lost may arrive late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.group import judge
from blockhouse_aggregator.protocol.commits import CommitOutcome, Refused, Unknown
from tests.simulation.clock import Process
from tests.simulation.logs import StreamLog
from tests.simulation.world import World

TICK = 0.5
TOPIC = "events"


@dataclass(slots=True)
class Member:
    """What the coordinator knows of a static member. `owned` is what it may hold."""

    instance: str
    member_id: int
    session: SimSession
    heard: float
    owned: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Offset:
    """What is committed of one partition, and what was before it, oldest first; `forced` after a tool has set it
    without the owners' knowledge."""

    offset: int | None = None
    metadata: str = ""
    forced: bool = False
    restoring: bool = False
    """A person is about to restore what is right: no other one decides about it."""
    earlier: list[tuple[int, str]] = field(default_factory=list)
    times_forced: int = 0

    def force(self, offset: int, metadata: str, *, restores: bool) -> Callable[[], None]:
        """Set it without the owners' knowledge. What is returned puts back what was there before, unless something else
        has been committed since, the offset was forgotten with its topic, or it was forced again."""
        right = self.offset, self.metadata
        self.offset, self.metadata, self.forced, self.restoring = offset, metadata, True, restores
        self.times_forced += 1
        time = self.times_forced

        def restore() -> None:
            if self.times_forced != time:
                return
            self.restoring = False
            if self.forced:
                self.offset, self.metadata, self.forced = *right, False

        return restore


Applied = Callable[[StreamId, int, str, "SimSession"], None]


class Cluster:
    """Brokers and coordinator. `applied` hears of every commit that is stored."""

    def __init__(self, world: World, name: str, zone: int, applied: Applied) -> None:
        self.world = world
        self.name = name
        self.zone = zone
        self.up = True
        self.topic = 0
        """The incarnation of the topic, and whether it is there now."""
        self.deleted = False
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.logs = [StreamLog(StreamId(name, TOPIC, p), zone) for p in range(world.setting.partitions)]
        self.offsets = [Offset() for _ in self.logs]
        self._applied = applied
        self._ids = 0
        world.later(TICK, self._tick)

    @property
    def topic_id(self) -> str:
        return self.id_of(self.topic)

    def id_of(self, topic: int) -> str:
        """The id of its topic's n-th incarnation."""
        return f"topic-{self.name}-{topic}"

    def reachable(self, session: SimSession) -> bool:
        return self.up and session.process.running and self.world.linked(session.zone, self.zone)

    def owner(self, partition: int) -> str | None:
        return next((m.instance for m in self.members.values() if partition in m.owned), None)

    # --- membership -----------------------------------------------------------------------------------------

    def join(self, session: SimSession) -> Member:
        """A returning static member gets its partitions back under a new id; a new one makes the group rebalance."""
        self._ids += 1
        known = self.members.get(session.instance)
        if known is not None:
            known.member_id, known.session, known.heard = self._ids, session, self.world.loop.time()
            return known
        member = Member(session.instance, self._ids, session, self.world.loop.time())
        self.members[session.instance] = member
        self.rebalance()
        return member

    def leave(self, session: SimSession) -> None:
        member = self.members.get(session.instance)
        if member is not None and member.session is session:
            del self.members[session.instance]
            self.rebalance()

    def rebalance(self) -> None:
        """A new generation. Partitions without an owner go to the members that should have them."""
        self.generation += 1
        target = self.target()
        for partition, instance in target.items():
            if self.owner(partition) is None:
                self.members[instance].owned.add(partition)
        self.world.narrate(f"kafka {self.name}", f"generation {self.generation}: {self._text()}")
        for member in self.members.values():
            member.session.notify()

    def target(self) -> dict[int, str]:
        """An even share for every member; as few partitions as possible move."""
        if not self.members:
            return {}
        names = sorted(self.members)
        share = {name: len(self.logs) // len(names) for name in names}
        most = sorted(names, key=lambda name: (-len(self.members[name].owned), name))
        for name in most[: len(self.logs) % len(names)]:
            share[name] += 1
        found: dict[int, str] = {}
        for name in names:
            for partition in sorted(self.members[name].owned)[: share[name]]:
                found[partition] = name
                share[name] -= 1
        free = [p for p in range(len(self.logs)) if p not in found]
        for partition in free:
            name = max(names, key=lambda n: (share[n], n))
            found[partition] = name
            share[name] -= 1
        return found

    def _text(self) -> str:
        return ", ".join(f"{m.instance}:{sorted(m.owned)}" for m in self.members.values())

    def _tick(self) -> None:
        """Heartbeats continue by themselves while a process runs; a silent member is thrown out."""
        now = self.world.loop.time()
        if self.up:
            silent = []
            for member in self.members.values():
                if self.reachable(member.session) and not member.session.closed:
                    member.heard = now
                elif now - member.heard > self.world.setting.session_timeout:
                    silent.append(member.instance)
            for instance in silent:
                self.world.narrate(f"kafka {self.name}", f"{instance} is thrown out")
                self.members.pop(instance).session.notify()  # it hears of it in its next heartbeat, if it lives
            if silent:
                self.rebalance()
        self.world.later(TICK, self._tick)

    def back(self) -> None:
        """Up again, with fresh session timers."""
        self.up = True
        for member in self.members.values():
            member.heard = self.world.loop.time()
            member.session.notify()

    # --- commits --------------------------------------------------------------------------------------------

    def arrives(
        self, session: SimSession, member_id: int, generation: int, partition: int, offset: int, metadata: str
    ) -> KafkaError | None:
        """Judge one commit request now."""
        if self.world.chance(self.world.setting.chances.loading):
            self.world.count("coordinator loading")
            return KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
        member = self.members.get(session.instance)
        if member is None:
            return KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
        if member.member_id != member_id:
            return KafkaError(KafkaError.FENCED_INSTANCE_ID)
        if generation != self.generation:
            return KafkaError(KafkaError.ILLEGAL_GENERATION)
        if len(metadata) > self.world.setting.metadata_units:
            self.world.hurt(f"LIMIT: {session.instance} commits metadata of {len(metadata)} units")
            return KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE)
        self._applied(self.logs[partition].stream, offset, metadata, session)
        entry = self.offsets[partition]
        if entry.offset is not None:
            entry.earlier.append((entry.offset, entry.metadata))
        entry.offset, entry.metadata, entry.forced = offset, metadata, False
        return None


class SimSession:
    """Stands in for `kafka.session.Session`: one consumer, one member id at a time. Called on the member's thread."""

    def __init__(
        self, cluster: Cluster, process: Process, zone: int, instance: str, notify: Callable[[], None]
    ) -> None:
        self.cluster = cluster
        self.process = process
        self.zone = zone
        self.instance = instance
        self.notify = notify
        self.member_id = self._assigned_as = 0
        self.generation = 0
        self.assigned: set[int] = set()
        self.closed = False
        self.cost = 0.0
        """Seconds the call under way takes; the member is busy for so long."""
        self.heard = cluster.world.loop.time()
        self.on_assign: Any = None
        self.on_revoke: Any = None
        self.on_lost: Any = None
        self.read_forced: set[int] = set()

    # --- polling --------------------------------------------------------------------------------------------

    def replaced(self) -> bool:
        return self._assigned_as != 0 and self.member_id != self._assigned_as

    def _joins_late(self) -> None:
        """A member that was thrown out during a rebalance may join under a new id and keep what it held, unheard."""
        cluster, world = self.cluster, self.cluster.world
        thrown_out = self.assigned and self.instance not in cluster.members and cluster.reachable(self)
        if thrown_out and world.setting.chances.late_join and world.chance(world.setting.chances.late_join):
            world.count("joined late under another id")
            world.narrate(f"kafka {cluster.name}", f"{self.instance} joins late and keeps {sorted(self.assigned)}")
            self.member_id = cluster.join(self).member_id
            self.generation = cluster.generation

    def poll(self) -> list[KafkaError]:
        cluster, world = self.cluster, self.cluster.world
        if self.closed:
            return []
        if not cluster.reachable(self):
            if self.member_id and world.loop.time() - self.heard > world.setting.session_timeout:
                self._lose()
            return []
        self.heard = world.loop.time()
        self._joins_late()
        member = cluster.members.get(self.instance)
        if self.member_id and (member is None or member.member_id != self.member_id):
            self._lose()
            member = None
        if not self.member_id:
            member = cluster.join(self)
            self.member_id = member.member_id
        assert member is not None
        self.generation = cluster.generation
        self._reconcile(member)
        return []

    def _lose(self) -> None:
        lost, self.assigned, self.member_id, self._assigned_as = sorted(self.assigned), set(), 0, 0
        if lost:
            self.on_lost(self, _partitions(lost))
        self.notify()

    def _reconcile(self, member: Member) -> None:
        """Release what another member should have, take what we may have."""
        target = self.cluster.target()
        leaving = sorted(p for p in self.assigned if target.get(p) != self.instance)
        if leaving:
            self.on_revoke(self, _partitions(leaving))
            self.assigned -= set(leaving)
            member.owned -= set(leaving)
            self.cluster.rebalance()
            self.generation = self.cluster.generation
        arriving = sorted(member.owned - self.assigned)
        if arriving:
            self.assigned |= set(arriving)
            self._assigned_as = self._assigned_as or self.member_id
            self.on_assign(self, _partitions(arriving))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None: ...

    def pause(self, partitions: list[TopicPartition]) -> None: ...

    # --- commits --------------------------------------------------------------------------------------------

    def commit(self, target: TopicPartition, patience: float) -> CommitOutcome:
        """The reply is lost, with the request applied, late or never; or it comes after a trip there and back."""
        cluster, world = self.cluster, self.cluster.world
        text = target.metadata or ""
        self._joins_late()
        if self.replaced():
            return Refused("UnknownMember", retry=False)
        request = (self, self.member_id, self.generation, target.partition, target.offset, text)
        if not cluster.reachable(self):
            self.cost += patience
            if world.chance(0.3):
                self._arrives_late(request, patience)
            return Unknown(f"no answer within {patience:g} s")
        if world.chance(world.setting.chances.commit_lost):
            world.count("commit of unknown fate")
            self.cost += patience
            if world.chance(0.4):
                cluster.arrives(*request)
                world.narrate(f"kafka {cluster.name}", f"applies a commit of {self.instance}, the reply is lost")
            elif world.chance(0.8):
                self._arrives_late(request, patience)
            return Unknown(f"no answer within {patience:g} s")
        self.cost += 2 * world.trip(self.zone, cluster.zone)
        return judge(cluster.arrives(*request))

    def _arrives_late(self, request: tuple[Any, ...], patience: float) -> None:
        cluster, world = self.cluster, self.cluster.world

        def arrive() -> None:
            if cluster.up:
                world.narrate(f"kafka {cluster.name}", f"a late commit of {self.instance} arrives")
                world.count("late commit")
                cluster.arrives(*request)

        world.later(world.random.uniform(0.1, 3 * patience), arrive)

    def committed(self, partition: TopicPartition, timeout: float) -> TopicPartition:
        cluster = self.cluster
        if not cluster.reachable(self):
            self.cost += timeout
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.cost += 2 * cluster.world.trip(self.zone, cluster.zone)
        entry = cluster.offsets[partition.partition]
        (self.read_forced.add if entry.forced else self.read_forced.discard)(partition.partition)
        offset = -1001 if entry.offset is None else entry.offset
        return TopicPartition(partition.topic, partition.partition, offset, entry.metadata)

    def probe(self, timeout: float) -> None:
        return None

    # --- the end --------------------------------------------------------------------------------------------

    def leave(self, timeout: float) -> None:
        if self.cluster.reachable(self):
            self.cluster.leave(self)
        self.close()

    def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        self.closed = True


def _partitions(numbers: list[int]) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in numbers]
