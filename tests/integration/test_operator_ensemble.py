"""What operators of several zones agree on by a real ZooKeeper, and how a dead replica leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from kazoo.client import KazooClient

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.errors import Blocked, Retryable
from blockhouse_operator.adapters.ensemble import Ensemble
from blockhouse_operator.adapters.fence import Fence, LeadershipLost, OpenFence
from blockhouse_operator.decide.seen import Gap, State, StreamSeen, TableAt, ZoneReport
from e2e.stack import Stack
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from tests.integration.conftest import Names

pytestmark = pytest.mark.integration

Make = Callable[..., Ensemble]


@pytest.fixture
def ensemble(stack: Stack) -> Iterator[Make]:
    """ensemble() is another operator's client."""
    made: list[Ensemble] = []

    def make(fence: Fence | None = None) -> Ensemble:
        made.append(Ensemble(ZooKeeper(servers=stack.zookeeper.connect), fence or OpenFence()))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_one_replica_of_a_shard_is_restarted_at_a_time_whatever_zone_it_is_in(ensemble: Make, names: Names) -> None:
    root, here, there = names.zookeeper_root, ensemble(), ensemble()

    assert here.claim_restart(root, 0, "r-a-0") == "r-a-0"
    assert there.claim_restart(root, 0, "r-b-0") == "r-a-0", "the other zone has to wait"
    assert there.claim_restart(root, 1, "r-b-1") == "r-b-1", "another shard need not"
    there.release_restart(root, 0, "r-b-0")
    assert there.claimed_by(root, 0) == "r-a-0", "no replica releases another one's claim"
    assert here.claim_restart(root, 0, "r-a-0") == "r-a-0", "a restarted operator continues with its own"
    here.release_restart(root, 0, "r-a-0")
    here.release_restart(root, 0, "r-a-0")
    assert there.claimed_by(root, 0) == ""
    assert there.claim_restart(root, 0, "r-b-0") == "r-b-0"


def test_a_claim_outlives_the_operator_that_made_it(ensemble: Make, stack: Stack, names: Names) -> None:
    dying = Ensemble(ZooKeeper(servers=stack.zookeeper.connect), OpenFence())
    dying.claim_restart(names.zookeeper_root, 0, "r-a-0")
    dying.close()

    assert ensemble().claimed_by(names.zookeeper_root, 0) == "r-a-0", "its half-done restart still counts"


def test_zones_hear_of_each_other(ensemble: Make, names: Names) -> None:
    root, here, there = names.zookeeper_root, ensemble(), ensemble()
    assert there.reports(root, 0, ["dc-a"]) == ()
    report = ZoneReport(
        "dc-a",
        {"r-a-0": State.REPLAYING},
        (StreamSeen("a/t/0", "REPLAY", why="x", in_flight=frozenset({"db.t", "db.u"})),),
        {
            "db.t": (TableAt("r-a-0", Gap(True, ("extra",)), ddl="1", rollout="r", held_since_ms=5, busy=True),),
            "db.u": (),
        },
    )
    here.report(root, 0, report)
    here.report(root, 0, report)

    (heard,) = there.reports(root, 0, ["dc-a", "dc-c"])
    assert heard == report


def test_what_a_later_version_writes_besides_is_passed_over(ensemble: Make, stack: Stack, names: Names) -> None:
    """Else a zone would be silent to those that are not upgraded yet, and hold their rollouts."""
    root, here = names.zookeeper_root, ensemble()
    report = ZoneReport("dc-a", {}, (StreamSeen("a/t/0", "CONSUME"),), {"db.t": (TableAt("r-a-0"),)})
    here.report(root, 0, report)
    path = f"{root}/operator/shards/0/zones/dc-a"
    with closing(KazooClient(hosts=stack.zookeeper.connect)) as zookeeper:
        zookeeper.start()
        written = json.loads(zookeeper.get(path)[0])
        for each in (written, written["streams"][0], written["tables"]["db.t"][0]):
            each["later"] = 1
        zookeeper.set(path, json.dumps(written).encode())
        zookeeper.stop()

    assert here.reports(root, 0, ["dc-a"]) == (report,)


def test_who_does_not_lead_writes_nothing(ensemble: Make, names: Names) -> None:
    former = ensemble(Fence(10))
    for write in (
        lambda: former.claim_restart(names.zookeeper_root, 0, "r"),
        lambda: former.report(names.zookeeper_root, 0, ZoneReport("dc-a", {})),
    ):
        with pytest.raises(LeadershipLost):
            write()
    assert ensemble().claimed_by(names.zookeeper_root, 0) == ""


def test_a_dead_replica_is_unregistered_and_a_live_one_is_left_alone(
    ensemble: Make, stack: Stack, names: Names
) -> None:
    """The nodes are those that ClickHouse makes; a server whose nodes are taken away could not be used any more."""
    path = f"/clickhouse/tables/{names.stem}"
    zookeeper = KazooClient(hosts=stack.zookeeper.connect)
    zookeeper.start()
    for node in ("metadata", "replicas/alive/parts/p1", "replicas/dead/parts/p1", "replicas/dead/queue/q-1"):
        zookeeper.create(f"{path}/{node}", makepath=True)
    zookeeper.create(f"{path}/replicas/alive/is_active", ephemeral=True)
    client = ensemble()

    with pytest.raises(Blocked, match="alive is active in ZooKeeper"):
        client.unregister(path, "alive")
    assert client.unregister(path, "dead") == 1
    assert client.unregister(path, "dead") == 0, "it may be asked for again"
    assert zookeeper.get_children(f"{path}/replicas") == ["alive"]
    assert client.unregister("/nowhere/at/all", "dead") == 0
    zookeeper.stop()
    zookeeper.close()


def test_an_ensemble_that_does_not_answer_is_named() -> None:
    ports = Ports()
    unreachable = Ensemble(ZooKeeper(servers=f"127.0.0.1:{ports['closed']}"), OpenFence())
    with pytest.raises(Retryable, match=r"ZooKeeper at 127\.0\.0\.1"):
        unreachable.quorum_waits("/", {})
    ports.release()


def test_a_part_that_waits_for_its_quorum_is_seen_with_its_age(ensemble: Make, stack: Stack, names: Names) -> None:
    root, zookeeper = names.zookeeper_root, KazooClient(hosts=stack.zookeeper.connect)
    waiting, clear = f"{root}/tables/waiting", f"{root}/tables/clear"
    paths = {"db.waiting": waiting, "db.clear": clear, "db.nowhere": f"{root}/tables/nowhere"}
    zookeeper.start()
    try:
        zookeeper.ensure_path(f"{clear}/quorum")
        zookeeper.create(f"{waiting}/quorum/status", b"version: 1", makepath=True)
        one = ensemble()
        assert set(one.quorum_waits(root, paths)) == {"db.waiting"}
        zookeeper.set(f"{waiting}/quorum/status", b"version: 2")
        first = one.quorum_waits(root, paths)["db.waiting"]
        assert wait_until(lambda: one.quorum_waits(root, paths)["db.waiting"] > first, timeout=60)
        assert one.quorum_waits(root, paths)["db.waiting"] < 300
        zookeeper.delete(f"{waiting}/quorum/status")
        assert one.quorum_waits(root, paths) == {}
    finally:
        zookeeper.stop()
        zookeeper.close()
