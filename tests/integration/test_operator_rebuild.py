"""Replicas that lost their volume, or came back with one that ZooKeeper had forgotten, on real servers."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest
from clickhouse_driver.errors import ServerException

from blockhouse.config.endpoints import ZooKeeper
from blockhouse_operator.adapters.ensemble import Ensemble
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.decide.deferred import RestartDeferred
from blockhouse_operator.decide.rebuild import BeginRebuild, EndRebuild, plan_rebuild
from blockhouse_operator.decide.removal import Unregister
from blockhouse_operator.decide.seen import Rebuild, RebuildSeen, ShardSeen
from e2e.clickhouse_choice import OLDEST
from e2e.stack.process import wait_until
from e2e.stack.server import StackError
from e2e.stack.spec import StackSpec
from tests.integration.test_operator_replication import ROOT, Shard, eventually, shard  # noqa: F401
from tests.unit.operator.shard_world import consuming, spec_of

pytestmark = pytest.mark.integration

REPLICA_EXISTS = 253
SPEC = spec_of(3)
NAMES = dict(zip((replica.name for replica in SPEC.replicas), ("r1", "r2", "r3"), strict=True))


def plan(shard: Shard, table: str, rebuild: RebuildSeen) -> list[object]:  # noqa: F811
    """What the operator would do about r3, which the spec calls by its third name."""
    found = shard.seen(table, leaving="r1")
    by_spec = {path: {n: reps[r] for n, r in NAMES.items() if r in reps} for path, reps in found.tables.items()}
    replicas = tuple(map(consuming, NAMES))
    seen = ShardSeen(replicas=replicas, rebuild=rebuild, replication=type(found)(by_spec, names=found.names))
    return list(plan_rebuild(SPEC, seen))


def lose_data(shard: Shard, replica: str) -> None:  # noqa: F811
    server = shard.servers[replica]
    server.kill()
    shutil.rmtree(server.folder / "data")
    server.start()


def unregister(shard: Shard, table: str, replica: str) -> int:  # noqa: F811
    with closing(Ensemble(ZooKeeper(servers=shard.zookeeper.connect), OpenFence())) as ensemble:
        return ensemble.unregister(f"{ROOT}/{table}", replica)


def fill(shard: Shard, table: str) -> None:  # noqa: F811
    shard.create(table, "r1", "r2", "r3")
    shard.servers["r1"].execute(f"INSERT INTO {table} SELECT number FROM system.numbers LIMIT 5000")
    eventually(lambda: shard.copies(table).complete == ("r2", "r3"))


def rows(shard: Shard, table: str, replica: str) -> int:  # noqa: F811
    ((count,),) = shard.servers[replica].execute(f"SELECT count() FROM {table}")
    return int(count)


def test_a_lost_volume_is_cloned_from_the_others(shard: Shard) -> None:  # noqa: F811
    table, mine = "default.lost", list(NAMES)[2]
    path = f"{ROOT}/{table}"
    fill(shard, table)
    lose_data(shard, "r3")
    with pytest.raises(ServerException) as refused:
        shard.create(table, "r3")
    assert refused.value.code == REPLICA_EXISTS

    eventually(lambda: not shard.seen(table).tables[path]["r3"].active)
    empty = RebuildSeen(empty={mine: (path,)})
    (begin,) = plan(shard, table, empty)
    assert isinstance(begin, BeginRebuild)
    begun = Rebuild(mine)
    (drop,) = plan(shard, table, RebuildSeen(empty={mine: (path,)}, begun=begun))
    assert isinstance(drop, Unregister)
    assert drop.paths == (path,)
    assert unregister(shard, table, "r3") == 1
    (waits,) = plan(shard, table, RebuildSeen(begun=begun))
    assert isinstance(waits, RestartDeferred)
    assert "not there yet" in waits.why
    shard.create(table, "r3")

    eventually(lambda: isinstance(plan(shard, table, RebuildSeen(begun=begun))[0], EndRebuild))
    eventually(lambda: rows(shard, table, "r3") == 5000)


def test_a_lost_volume_is_not_forgotten_while_no_other_has_its_data(shard: Shard) -> None:  # noqa: F811
    """Rows that r3 alone has: its registration is all that is known of them."""
    table, mine = "default.alone", list(NAMES)[2]
    shard.create(table, "r1", "r2", "r3")
    for other in ("r1", "r2"):
        shard.servers[other].execute("SYSTEM STOP FETCHES")
    shard.servers["r3"].execute(f"INSERT INTO {table} VALUES", [(1,)])  # type: ignore[arg-type]
    eventually(lambda: len(shard.seen(table).tables[f"{ROOT}/{table}"]["r3"].parts) == 1)

    (held,) = plan(shard, table, RebuildSeen(asked=mine, claims={mine: "uid"}))

    assert isinstance(held, RestartDeferred)
    assert held.reason.value == "DataNotElsewhere"
    for other in ("r1", "r2"):
        shard.servers[other].execute("SYSTEM START FETCHES")
    eventually(lambda: isinstance(plan(shard, table, RebuildSeen(asked=mine, claims={mine: "u"}))[0], BeginRebuild))


@pytest.mark.clickhouse
@pytest.mark.skipif(StackSpec().clickhouse != OLDEST, reason="current servers start, and register it again")
def test_a_volume_that_zookeeper_forgot_keeps_the_server_from_starting_until_it_is_replaced(
    shard: Shard,  # noqa: F811
) -> None:
    """3 -> 2 -> 3 replicas with Retain: what the operator replaces the volume for."""
    table = "default.returned"
    fill(shard, table)
    server = shard.servers["r3"]
    server.stop()
    eventually(lambda: not shard.seen(table).tables[f"{ROOT}/{table}"]["r3"].active)
    for name in ("default.returned", "default.lost", "default.alone"):
        unregister(shard, name, "r3")

    with pytest.raises(StackError):
        server.start()
    server.kill()
    shutil.rmtree(server.folder / "data")
    server.start()
    shard.create(table, "r3")

    assert wait_until(lambda: rows(shard, table, "r3") == 5000, timeout=60)
