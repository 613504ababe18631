"""When a replica's data is safe without it, and that it stays until then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.decide.deferred import RestartDeferred
from blockhouse_operator.decide.removal import DeleteReplica, Drain, Unregister, plan_removal
from blockhouse_operator.decide.replication import ReplicaOfTable, ReplicationSeen, behind, copies, uncovered
from tests.unit.operator.shard_world import consuming, shard, spec_of

PATH = "/clickhouse/tables/0/db.t"
PARTS = frozenset({"all_0_0_0", "all_1_1_0"})
WHOLE = ReplicaOfTable(active=True, log_pointer=7, parts=PARTS)
OLD = "old"


def seen_with(*others: ReplicaOfTable | None, **more: object) -> ReplicationSeen:
    """A leaving replica with PARTS, and the replicas of the spec; None is not registered."""
    spec = spec_of(len(others))
    table = {OLD: WHOLE}
    table |= {r.name: other for r, other in zip(spec.replicas, others, strict=True) if other is not None}
    return ReplicationSeen({PATH: table}, names={PATH: "db.t"}, **more)  # type: ignore[arg-type]


def plan(replication: ReplicationSeen | None, *, replicas: int = 2, scale: int = 1, **more: object) -> list[object]:
    spec = spec_of(replicas)
    leaving = consuming(OLD) if scale else replace(consuming(OLD), scale=0, pod=None, aggregator=None)
    present = [consuming(replica.name) for replica in spec.replicas]
    return list(plan_removal(spec, shard(*present, surplus=(leaving,), replication=replication, **more)))


def held(steps: list[object]) -> RestartDeferred:
    (only,) = steps
    assert isinstance(only, RestartDeferred), steps
    assert only.reason is Reason.DRAINING
    return only


@pytest.mark.parametrize("scale", [1, 0])
@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        (None, "does not have table db.t"),
        (replace(WHOLE, active=False), "is not active (down or read-only) for db.t"),
        (replace(WHOLE, fetches=PARTS), "still fetches 2 parts of db.t"),
        (replace(WHOLE, log_pointer=6), "is at log entry 6, not at 7, of db.t"),
        (replace(WHOLE, parts=frozenset({"all_0_0_0"})), "lacks 1 part of db.t"),
    ],
)
def test_a_replica_stays_while_another_one_lacks_something(
    lacking: ReplicaOfTable | None, words: str, scale: int
) -> None:
    """Running it is not drained; drained already it is neither unregistered nor deleted."""
    found = held(plan(seen_with(WHOLE, lacking), scale=scale))

    assert words in found.why
    assert "accept-data-loss=old" in found.why


def test_a_replica_leaves_once_a_quorum_of_the_others_has_everything() -> None:
    assert [type(step) for step in plan(seen_with(WHOLE, WHOLE))] == [Drain]
    assert [type(step) for step in plan(seen_with(WHOLE, WHOLE), scale=0)] == [Unregister, DeleteReplica]
    assert [type(step) for step in plan(seen_with(WHOLE, WHOLE, None), replicas=3)] == [Drain], "a third may lag"


def test_what_a_loaded_table_fetches_besides_keeps_no_replica() -> None:
    newer = replace(WHOLE, fetches=frozenset({"all_9_9_0"}), log_pointer=8)

    assert [type(step) for step in plan(seen_with(WHOLE, newer))] == [Drain]


def test_the_step_states_how_many_bytes_remain() -> None:
    sizes = {PATH: {"all_0_0_0": 1024, "all_1_1_0": 512}}

    assert "2 parts (1.5 KiB) to copy" in held(plan(seen_with(WHOLE, None, sizes=sizes))).why
    assert "2 parts (size unknown) to copy" in held(plan(seen_with(WHOLE, None))).why


def test_silence_is_no_proof() -> None:
    assert "not known yet" in held(plan(None)).why
    unknown = held(plan(seen_with(WHOLE, WHOLE, unknown=("db.u",))))
    assert "db.u" in unknown.why
    alone = held(plan(seen_with(WHOLE, WHOLE, local={"db.notes": 2048})))
    assert "db.notes (2.0 KiB), not replicated" in alone.why


def test_a_person_may_accept_the_loss_of_the_replica_that_they_name() -> None:
    assert [type(step) for step in plan(seen_with(None, None), accepted_loss=OLD)] == [Drain]
    assert held(plan(seen_with(None, None), accepted_loss="another"))


def test_a_replica_that_is_registered_for_no_table_has_nothing_to_lose() -> None:
    assert [type(step) for step in plan(ReplicationSeen())] == [Drain]


@pytest.mark.parametrize(
    ("part", "by", "covered"),
    [
        ("all_3_3_0", "all_0_5_1", True),
        ("all_3_3_0", "all_0_5_1_9", True),
        ("all_3_6_1", "all_0_5_1", False),
        ("201811_3_3_0", "201810_0_5_1", False),
        ("20181101_20181130_3_3_0", "20181101_20181130_0_5_1", True),
        ("20181001_20181031_3_3_0", "20181101_20181130_0_5_1", False),
        ("odd", "all_0_5_1", False),
        ("odd", "odd", True),
    ],
)
def test_a_part_is_covered_by_one_it_was_merged_into(part: str, by: str, covered: bool) -> None:
    assert (uncovered(frozenset({part}), frozenset({by})) == frozenset()) is covered


def test_all_tables_count() -> None:
    both = ReplicationSeen({"/a": {OLD: WHOLE, "r": WHOLE}, "/b": {OLD: WHOLE}})

    assert copies(OLD, ["r"], 1, both).lacking == {"r": "does not have table /b"}


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        (None, "table db.t is not there yet"),
        (replace(WHOLE, active=False), "table db.t is not active there yet"),
        (replace(WHOLE, fetches=frozenset(f"all_{n}_{n}_0" for n in range(11))), "11 parts still to fetch"),
        (replace(WHOLE, fetches=frozenset({"all_9_9_0"})), ""),
        (WHOLE, ""),
    ],
)
def test_a_clone_has_caught_up_when_it_is_hardly_behind(mine: ReplicaOfTable | None, words: str) -> None:
    table = {"other": WHOLE} | ({"mine": mine} if mine else {})

    assert behind("mine", ["other", "third"], ReplicationSeen({PATH: table}, names={PATH: "db.t"})) == words
