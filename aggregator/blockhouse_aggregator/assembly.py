"""The parts of one aggregator, built from its configuration and joined to each other; nothing here runs yet.

It must only build: no request is sent to any server, so that building never waits and never fails for want of one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from blockhouse.config.pipeline import SPARE_UNITS, AggregatorConfig
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.session import Session, SessionState
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.group import GroupListener
from blockhouse_aggregator.kafka.member import GroupMember
from blockhouse_aggregator.runtime import adapters, local_shard
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.ports import Group, Ports
from blockhouse_aggregator.runtime.process.acceptances import Acceptances
from blockhouse_aggregator.runtime.process.draining import Draining
from blockhouse_aggregator.runtime.process.faulty_group import FaultyGroup
from blockhouse_aggregator.runtime.process.lag_watch import LagWatch
from blockhouse_aggregator.runtime.process.replica_health import ReplicaHealth
from blockhouse_aggregator.runtime.stream.context import MetadataRoom, StreamContext
from blockhouse_aggregator.runtime.stream.defects import Defects
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.stream.ownership_history import OwnershipHistory
from blockhouse_aggregator.runtime.stream.storing import Storing
from blockhouse_aggregator.runtime.tables.catalog import Catalog
from blockhouse_aggregator.runtime.tables.declared import DeclaredReplica
from blockhouse_aggregator.runtime.tables.hazards import HazardWatch
from blockhouse_aggregator.runtime.tables.loadable import check_columns, check_loadable
from blockhouse_aggregator.runtime.tables.replication import ReplicationWatch
from blockhouse_aggregator.runtime.tables.restarts import RestartRequests
from blockhouse_aggregator.runtime.tables.schema_rollouts import SchemaRollouts

INSERTS_AT_ONCE = 8


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the parts call in their aggregator: a listener for each Kafka cluster, the orderly end for a restart and the
    end after too many internal errors, whether a table has a block in flight here; the owners of streams; by Kafka
    cluster, what is wrong with it; where it is recorded which streams were owned."""

    listener: Callable[[str], GroupListener]
    restart: Callable[[str], None]
    too_many_errors: Callable[[], None]
    in_flight: Callable[[str], bool]
    owners: Mapping[StreamId, StreamOwner]
    cluster_errors: Mapping[str, str]
    history: OwnershipHistory


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that works for the streams. `members` and `cluster_facts` are by the name of the Kafka cluster."""

    members: Mapping[str, GroupMember]
    cluster_facts: Mapping[str, ClusterFacts]
    shard: local_shard.LocalShard
    catalog: Catalog
    restarting: RestartRequests
    rollouts: SchemaRollouts
    health: ReplicaHealth
    replication: ReplicationWatch
    context: StreamContext
    lag: LagWatch
    draining: Draining
    acceptances: Acceptances


def assemble(
    config: AggregatorConfig, session: Session, figures: Figures, hazards: HazardWatch, faults: Faults, hooks: Hooks
) -> Parts:
    """The parts over a session that is connected. On the event loop's thread."""
    _show_limits(config, session, figures)
    members = {
        cluster.name: GroupMember(cluster, config.kafka, config.replica, hooks.listener(cluster.name))
        for cluster in config.kafka.clusters
    }
    shard = local_shard.LocalShard(config, session)
    locks = adapters.ShardLocks(config, session)
    ports = Ports(
        group=_group(config, members, faults),
        shard=shard,
        locks=locks,
        schemas=adapters.StoredSchemas(session),
        pauses=adapters.StoredPauses(config, session, now_ms),
        markers=adapters.StoredMarkers(config, session, now_ms),
    )
    catalog = Catalog(ports, check_loadable(config), config.clickhouse.database)
    restarting = RestartRequests(adapters.StoredRestarts(config, session, now_ms), hooks.restart)
    lifetime = config.quorum.insert_lifetime
    health = ReplicaHealth(shard.unfit, config.handover_after)
    ends = adapters.BrokerEnds(config)
    context = StreamContext(
        config=config,
        ports=ports,
        catalog=catalog,
        storing=Storing(shard, locks, lifetime=lifetime, now_ms=now_ms, slots=INSERTS_AT_ONCE),
        figures=figures,
        now_ms=now_ms,
        fault=health.report,
        random=random.Random(),
        room=MetadataRoom(config.kafka.offset_metadata_max_units - SPARE_UNITS),
        streams=lambda: len(hooks.owners),
        defects=Defects(hooks.too_many_errors),
        history=hooks.history,
        faults=faults,
    )
    return Parts(
        members=members,
        cluster_facts={cluster.name: ClusterFacts(cluster) for cluster in config.kafka.clusters},
        shard=shard,
        catalog=catalog,
        restarting=restarting,
        rollouts=_rollouts(config, ports, catalog, hazards, restarting, hooks),
        health=health,
        replication=ReplicationWatch(shard, figures),
        context=context,
        lag=LagWatch(ends, hooks.owners, hooks.cluster_errors, lambda: health.problem, figures.lag, now_ms),
        draining=Draining(adapters.StoredDrain(config, session, now_ms)),
        acceptances=Acceptances(ports, hooks.owners, now_ms),
    )


@contextmanager
def storing_beside(config: AggregatorConfig, session: Session, holder: str) -> Iterator[Storing]:
    """What stores blocks beside the aggregators of a shard, over a session that is connected: under the same locks, in
    the name of `holder`, by the same claims, one block at a time. On the event loop's thread."""
    shard = local_shard.LocalShard(config, session)
    locks = adapters.ShardLocks(config.model_copy(update={"replica": f"{holder} ({config.replica})"}), session)
    try:
        yield Storing(shard, locks, lifetime=config.quorum.insert_lifetime, now_ms=now_ms, slots=1)
    finally:
        locks.close()
        shard.close()


def _show_limits(config: AggregatorConfig, session: Session, figures: Figures) -> None:
    def changed(state: SessionState) -> None:
        if state is SessionState.LOST:
            figures.sessions_lost.inc()

    figures.metadata_limit.set(config.kafka.offset_metadata_max_units)
    session.add_listener(changed)


def _rollouts(
    config: AggregatorConfig,
    ports: Ports,
    catalog: Catalog,
    hazards: HazardWatch,
    restarting: RestartRequests,
    hooks: Hooks,
) -> SchemaRollouts:
    return SchemaRollouts(
        config,
        ports.pauses,
        catalog,
        DeclaredReplica(config),
        check_columns,
        hooks.in_flight,
        lambda: hazards.partitions,
        restarting,
    )


def _group(config: AggregatorConfig, members: Mapping[str, GroupMember], faults: Faults) -> Group:
    groups = adapters.KafkaGroups(config, members)
    if not faults.enabled:
        return groups

    async def rejoin(cluster: str) -> None:
        await asyncio.wrap_future(members[cluster].rejoin())

    return FaultyGroup(groups, faults, rejoin)
