"""When a replica is cloned again from others, and when that is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.decide.deferred import OVERDUE, RestartDeferred
from blockhouse_operator.decide.pods import pod_seen
from blockhouse_operator.decide.rebuild import (
    BeginRebuild,
    EndRebuild,
    ReplaceVolume,
    RestoreReplica,
    plan_rebuild,
)
from blockhouse_operator.decide.removal import Unregister, plan_removal
from blockhouse_operator.decide.replication import ReplicaOfTable, ReplicationSeen
from blockhouse_operator.decide.rollout import plan_rollout
from blockhouse_operator.decide.seen import BegunStep, PodSeen, Rebuild, RebuildSeen, ReplicaSeen
from blockhouse_operator.decide.shard import plan_shard
from blockhouse_operator.reconcile.observe import overdue_pods
from tests.unit.operator.shard_world import consuming, shard, spec_of, unready

SPEC = spec_of(3)
MINE, *OTHERS = [replica.name for replica in SPEC.replicas]
PATH = "/clickhouse/tables/0/db.t"
PARTS = frozenset({"all_0_0_0"})
WHOLE = ReplicaOfTable(active=True, log_pointer=7, parts=PARTS)
DEAD = replace(WHOLE, active=False)
COPIED = ReplicationSeen({PATH: {MINE: DEAD, **dict.fromkeys(OTHERS, WHOLE)}}, names={PATH: "db.t"})
ALONE = ReplicationSeen({PATH: {MINE: DEAD, **dict.fromkeys(OTHERS, replace(WHOLE, parts=frozenset()))}})
CLAIMS = {MINE: "old-uid"}

LOST = RebuildSeen(claims=CLAIMS, lost=frozenset({MINE}))
RETURNED = RebuildSeen(claims=CLAIMS, returned=frozenset({MINE}))
EMPTY = RebuildSeen(claims=CLAIMS, empty={MINE: (PATH,)})
ASKED = RebuildSeen(claims=CLAIMS, asked=MINE)


def plan(rebuild: RebuildSeen | None, replication: ReplicationSeen | None, **more: Any) -> list[Any]:
    mine = more.pop("mine", replace(unready(consuming(MINE)), pod=PodSeen(ready=False, spec_hash="new", restarts=3)))
    present = [mine, *map(consuming, OTHERS)]
    return list(plan_rebuild(SPEC, shard(*present, rebuild=rebuild, replication=replication, **more)))


@pytest.mark.parametrize(
    ("rebuild", "claim"), [(LOST, "old-uid"), (RETURNED, "old-uid"), (ASKED, "old-uid"), (EMPTY, "")]
)
def test_a_rebuild_is_noted_before_anything_is_touched(rebuild: RebuildSeen, claim: str) -> None:
    (step,) = plan(rebuild, COPIED)

    assert isinstance(step, BeginRebuild)
    assert (step.replica, step.claim) == (MINE, claim)


@pytest.mark.parametrize("rebuild", [LOST, RETURNED, ASKED, EMPTY])
def test_it_is_refused_where_others_are_not_proven_to_have_the_data(rebuild: RebuildSeen) -> None:
    (held,) = plan(rebuild, ALONE)

    assert isinstance(held, RestartDeferred)
    assert (held.reason, held.stalled) == (Reason.DATA_NOT_ELSEWHERE, True)
    assert "accept-data-loss" in held.why
    assert isinstance(plan(rebuild, ALONE, accepted_loss=MINE)[0], BeginRebuild)


@pytest.mark.parametrize("rebuild", [RETURNED, ASKED])
def test_a_volume_of_which_zookeeper_knows_nothing_is_not_wiped_when_no_other_replica_is_alive(
    rebuild: RebuildSeen,
) -> None:
    """An empty ZooKeeper proves nothing: this volume may be the last copy."""
    dead = ReplicationSeen({PATH: dict.fromkeys(OTHERS, DEAD)}, names={PATH: "db.t"})
    for nothing in (ReplicationSeen(absent=("db.t",)), dead):
        (held,) = plan(rebuild, nothing)
        assert isinstance(held, RestartDeferred)
        assert held.reason is Reason.DATA_NOT_ELSEWHERE


def test_a_volume_whose_replica_was_removed_with_loss_is_not_wiped_by_itself() -> None:
    gone = ReplicationSeen({PATH: dict.fromkeys(OTHERS, WHOLE)})

    assert isinstance(plan(RETURNED, gone)[0], BeginRebuild)
    (held,) = plan(replace(RETURNED, unproven=frozenset({MINE})), gone)
    assert isinstance(held, RestartDeferred)
    assert "before others had its data" in held.why


def test_silence_is_no_proof() -> None:
    for more in ({}, {"zookeeper_trouble": "down"}):
        (held,) = plan(ASKED, None, **more)
        assert isinstance(held, RestartDeferred)
        assert not held.stalled
    (unknown,) = plan(ASKED, replace(COPIED, unknown=("db.u",)))
    assert isinstance(unknown, RestartDeferred)
    assert "db.u" in unknown.why


def test_a_returned_volume_is_registered_again_by_a_server_that_can() -> None:
    (step,) = plan(RETURNED, COPIED, mine=consuming(MINE))
    assert isinstance(step, RestoreReplica)
    (held,) = plan(RETURNED, COPIED, mine=unready(consuming(MINE)))
    assert isinstance(held, RestartDeferred), "it may still be starting"


BEGUN = replace(ASKED, begun=Rebuild(MINE, "old-uid"))
ENDED = ReplicaSeen(MINE, "dc-a", "new", scale=0)


def test_the_volume_goes_after_the_pod_and_the_registration_and_only_if_the_data_is_still_elsewhere() -> None:
    (held,) = plan(BEGUN, COPIED, mine=consuming(MINE))
    assert isinstance(held, RestartDeferred)
    assert [type(step) for step in plan(BEGUN, COPIED, mine=ENDED)] == [Unregister, ReplaceVolume]
    (refused,) = plan(BEGUN, ALONE, mine=ENDED)
    assert isinstance(refused, RestartDeferred)
    assert refused.reason is Reason.DATA_NOT_ELSEWHERE


def test_a_pod_that_does_not_end_is_reported_with_what_a_person_has_to_do() -> None:
    pod = PodSeen(ready=False, terminating=True, node="node-7", ends_by="2026-01-01T00:00:00Z")
    ending = ReplicaSeen(MINE, "dc-a", "new", scale=0, pod=pod)
    for overdue in ({}, {MINE: OVERDUE}, {OTHERS[0]: 9999.0}):
        (waits,) = plan(BEGUN, COPIED, mine=ending, overdue=overdue)
        assert isinstance(waits, RestartDeferred)
        assert (waits.reason, waits.stalled) == (Reason.REBUILDING, False)

    (stuck,) = plan(BEGUN, COPIED, mine=ending, overdue={MINE: OVERDUE + 1})

    assert isinstance(stuck, RestartDeferred)
    assert (stuck.reason, stuck.stalled) == (Reason.POD_NOT_ENDING, True)
    for words in (f"{MINE}-0", "2026-01-01T00:00:00Z", "delete node node-7", "out-of-service=", "--force"):
        assert words in stuck.why


def test_so_is_one_of_a_replica_that_leaves() -> None:
    leaving = ReplicaSeen("events-0-dc-a-9", "dc-a", scale=0, pod=PodSeen(ready=False, terminating=True, node="node-7"))
    present = [consuming(replica.name) for replica in SPEC.replicas]

    (waits,) = plan_removal(SPEC, shard(*present, surplus=(leaving,)))
    (stuck,) = plan_removal(SPEC, shard(*present, surplus=(leaving,), overdue={leaving.name: OVERDUE + 1}))

    assert isinstance(waits, RestartDeferred)
    assert isinstance(stuck, RestartDeferred)
    assert (waits.reason, stuck.reason) == (Reason.DRAINING, Reason.POD_NOT_ENDING)


def test_a_pod_has_its_grace_period_to_end() -> None:
    pod = pod_seen(
        {"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}, "spec": {"nodeName": "node-7"}, "status": {}}
    )
    ending = (ReplicaSeen(MINE, "dc-a", pod=pod), consuming(OTHERS[0]))

    assert (pod.node, pod.ends_by) == ("node-7", "2026-01-01T00:01:00Z")
    assert overdue_pods(ending, datetime(2026, 1, 1, 0, 0, 59, tzinfo=UTC)) == {}
    assert overdue_pods(ending, datetime(2026, 1, 1, 0, 5, tzinfo=UTC)) == {MINE: 240.0}


def test_with_a_new_volume_it_waits_until_the_clone_has_caught_up() -> None:
    replaced = replace(BEGUN, claims={MINE: "new-uid"})
    cloning = replace(WHOLE, log_pointer=7, fetches=frozenset(f"all_{n}_{n}_0" for n in range(20)))
    for mine, words in ((None, "not there yet"), (cloning, "20 parts still to fetch")):
        table = dict.fromkeys(OTHERS, WHOLE) | ({MINE: mine} if mine else {})
        (held,) = plan(replaced, ReplicationSeen({PATH: table}), mine=consuming(MINE))
        assert isinstance(held, RestartDeferred)
        assert held.reason is Reason.REBUILDING
        assert words in held.why
    (step,) = plan(replaced, ReplicationSeen({PATH: dict.fromkeys((MINE, *OTHERS), WHOLE)}), mine=consuming(MINE))
    assert isinstance(step, EndRebuild)


def test_of_an_empty_volume_only_the_registration_is_dropped_of_tables_that_are_not_there() -> None:
    begun = replace(EMPTY, begun=Rebuild(MINE))
    (step,) = plan(begun, COPIED, mine=consuming(MINE))

    assert isinstance(step, Unregister)
    assert step.paths == (PATH,)


def test_nothing_else_restarts_or_leaves_meanwhile() -> None:
    outdated = consuming(OTHERS[0], revision="old")
    present = [consuming(MINE), outdated, consuming(OTHERS[1])]
    seen = shard(*present, rebuild=replace(BEGUN, claims={MINE: "new"}), replication=COPIED)

    held = plan_rollout(SPEC, seen)

    assert isinstance(held, RestartDeferred)
    assert held.reason is Reason.REBUILDING
    leaving = plan_shard(SPEC, replace(seen, surplus=(consuming("old"),)))
    assert leaving.steps == ()


def test_a_rebuild_waits_for_a_restart_and_ends_when_its_replica_leaves_the_spec() -> None:
    (held,) = plan(ASKED, COPIED, begun=BegunStep(OTHERS[0], 1.0))
    assert isinstance(held, RestartDeferred)
    (step,) = plan(replace(ASKED, begun=Rebuild("gone", "uid")), COPIED)
    assert isinstance(step, EndRebuild)


def test_a_name_that_is_no_replica_is_reported() -> None:
    (held,) = plan(RebuildSeen(asked="typo"), COPIED)
    assert isinstance(held, RestartDeferred)
    assert "typo, which is no replica" in held.why
