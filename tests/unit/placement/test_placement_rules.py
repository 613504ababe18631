"""The rules of placement, one small fleet each."""

from __future__ import annotations

import pytest

from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, TopicPartition
from blockhouse.placement.rebalance import RebalanceOptions, plan_rebalance
from blockhouse.placement.rebuild import RebuildOptions, plan_rebuild
from blockhouse.placement.report import Reason, report_on
from blockhouse.placement.topics import assign_partitions

GIB = 1 << 30


def key(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def sets(*replicas: tuple[int, ...]) -> PartitionMap:
    return PartitionMap({key(number): ids for number, ids in enumerate(replicas)})


def fleet(racks: dict[int, str], free: dict[int, int] | None = None) -> dict[int, Broker]:
    return {id: Broker(id, rack, float((free or {}).get(id, 1000) * GIB)) for id, rack in racks.items()}


def sizes(*gib: int) -> dict[TopicPartition, float]:
    return {key(number): float(size * GIB) for number, size in enumerate(gib)}


class TestRebuildByCount:
    def test_a_replica_kept_at_a_later_position_counts_for_an_earlier_slot(self) -> None:
        cluster = fleet({2: "b", 3: "b", 4: "a"})

        plan = plan_rebuild(sets((1, 2)), cluster, [2, 3, 4])

        assert plan.after == sets((4, 2))  # 3 shares the rack of 2

    def test_brokers_without_a_rack_never_collide(self) -> None:
        plan = plan_rebuild(sets((1, 2)), fleet({2: "", 3: ""}), [2, 3])

        assert plan.after == sets((3, 2))

    def test_racks_may_repeat_once_enough_are_present(self) -> None:
        cluster = fleet({1: "a", 2: "b", 3: "a", 4: "b"})

        strict = plan_rebuild(sets((1, 2)), cluster, [1, 2, 3, 4], RebuildOptions(replication=3))
        relaxed = plan_rebuild(sets((1, 2)), cluster, [1, 2, 3, 4], RebuildOptions(replication=3, min_rack_ids=2))

        assert "2 are in a rack that already holds one" in strict.errors[0]
        assert relaxed.errors == ()
        assert relaxed.after[key(0)][:2] == (1, 2)

    def test_less_replication_drops_leaving_brokers_first(self) -> None:
        plan = plan_rebuild(sets((1, 2, 3)), fleet({2: "b", 3: "c"}), [2, 3], RebuildOptions(replication=2))

        assert plan.after == sets((2, 3))
        assert report_on(plan).partitions[0].reasons == (
            Reason.REPLACED_BROKER,
            Reason.REPLICATION_DOWN,
            Reason.PREFERRED_LEADER,
        )

    def test_replicas_outside_the_map_weigh_too(self) -> None:
        cluster = {id: Broker(id, rack, used=used) for id, rack, used in ((2, "b", 0), (3, "c", 5), (4, "d", 1))}

        assert plan_rebuild(sets((1, 2)), cluster, [2, 3, 4]).after == sets((4, 2))

    def test_slots_are_exchanged_when_the_last_ones_had_no_choice(self) -> None:
        cluster = fleet({1: "b", 2: "c", 3: "a"})

        plan = plan_rebuild(sets((3,), (2,), (1,)), cluster, [1, 2, 3], RebuildOptions(force=True, replication=2))

        assert set(plan.after.replica_counts().values()) == {2}  # position by position it would be 1, 2 and 3

    def test_a_forced_rebuild_of_an_even_map_moves_nothing(self) -> None:
        even = sets((1, 2), (2, 3), (3, 1))

        plan = plan_rebuild(even, fleet({1: "a", 2: "b", 3: "c"}), [1, 2, 3], RebuildOptions(force=True))

        assert report_on(plan).replicas_moved == 0

    def test_a_forced_rebuild_on_more_brokers_moves_no_more_than_their_share(self) -> None:
        cluster = fleet({id: "abc"[id % 3] for id in range(6)})
        current = PartitionMap({})
        for topic in ("t", "u", "v"):
            current = current.updated(assign_partitions(topic, range(20), 2, cluster, current))
        larger = cluster | fleet({6: "a", 7: "b", 8: "c"})

        plan = plan_rebuild(current, larger, larger, RebuildOptions(force=True))

        held = plan.after.replica_counts()
        assert max(held.values()) - min(held.values()) <= 1
        assert report_on(plan).replicas_moved == held[6] + held[7] + held[8]


class TestRebuildByStorage:
    OPTIONS = RebuildOptions(placement="storage")

    def test_the_largest_partition_goes_to_the_freest_broker(self) -> None:
        cluster = fleet({2: "b", 3: "c"}, {2: 100, 3: 90})

        plan = plan_rebuild(sets((1,), (1,)), cluster, [2, 3], self.OPTIONS, sizes(10, 40))

        assert plan.after == sets((3,), (2,))
        assert plan.free_after == {2: 60.0 * GIB, 3: 80.0 * GIB}

    def test_head_room_is_taken_from_the_new_broker_only(self) -> None:
        cluster = fleet({1: "a", 2: "b"}, {1: 10, 2: 100})

        plan = plan_rebuild(sets((1,)), cluster, [2], RebuildOptions(placement="storage", size_factor=1.5), sizes(20))

        assert plan.free_after == {1: 30.0 * GIB, 2: 70.0 * GIB}

    def test_a_kept_set_is_not_shuffled(self) -> None:
        options = RebuildOptions(placement="storage", optimize="storage")
        many = sets(*[(1, 2, 3)] * 8)

        plan = plan_rebuild(many, fleet({1: "a", 2: "b", 3: "c"}), [1, 2, 3], options, sizes(*[1] * 8))

        assert plan.after == many


class TestSubstitutionAffinity:
    OPTIONS = RebuildOptions(sub_affinity=True)

    def test_a_new_broker_takes_exactly_the_slots_of_one_in_its_rack(self) -> None:
        current = sets((1, 2), (2, 3), (3, 1))
        cluster = fleet({1: "a", 2: "b", 3: "c", 7: "b", 8: "a"})

        plan = plan_rebuild(current, cluster, [3, 7, 8], self.OPTIONS)

        assert plan.after == sets((8, 7), (7, 3), (3, 8))

    def test_two_brokers_of_a_rack_get_a_substitute_each(self) -> None:
        cluster = fleet({1: "a", 2: "a", 3: "b", 7: "a", 8: "a"})

        plan = plan_rebuild(sets((1, 3), (2, 3)), cluster, [3, 7, 8], self.OPTIONS)

        assert plan.after == sets((7, 3), (8, 3))

    def test_the_rack_of_a_broker_that_is_gone_is_inferred(self) -> None:
        current = sets((1, 2), (4, 3), (3, 2))  # 1 was beside a; b and c are seen without it
        cluster = fleet({2: "a", 3: "c", 4: "b", 7: "a", 8: "b"})

        plan = plan_rebuild(current, cluster, [2, 3, 4, 7, 8], self.OPTIONS)

        assert plan.after == sets((8, 2), (4, 3), (3, 2))

    @pytest.mark.parametrize(
        ("desired", "message"),
        [
            ([2, 3], "1 brokers leave, 0 are new"),
            ([2, 3, 7], "broker 1 is in rack 'a', and no new broker of that rack is left"),
        ],
    )
    def test_without_a_substitute_there_is_no_plan(self, desired: list[int], message: str) -> None:
        cluster = fleet({1: "a", 2: "b", 3: "c", 7: "b"})

        with pytest.raises(InvalidInput, match=message):
            plan_rebuild(sets((1, 2), (2, 3)), cluster, desired, self.OPTIONS)

    def test_a_substitute_that_would_break_a_constraint_is_an_error_of_the_plan(self) -> None:
        cluster = fleet({1: "a", 2: "a", 7: "a"})

        plan = plan_rebuild(sets((1, 2)), cluster, [2, 7], self.OPTIONS)

        assert plan.errors == ("t partition 0: no broker may take replica 0: its substitute 7 is refused (rack taken)",)


class TestRebalance:
    def test_the_fullest_broker_gives_its_largest_partition_that_fits(self) -> None:
        cluster = fleet({1: "a", 2: "b", 3: "c"}, {1: 10, 2: 100, 3: 110})
        current, size = sets((1,), (1,), (2,)), sizes(80, 40, 5)

        plan = plan_rebalance(current, cluster, [1, 2, 3], size, RebalanceOptions(tolerance=0.1))

        assert plan.targets == (1,)
        assert plan.after == sets((1,), (3,), (2,))
        assert plan.free_after == {1: 50.0 * GIB, 2: 100.0 * GIB, 3: 70.0 * GIB}

    def test_a_rack_local_move_stays_in_the_rack(self) -> None:
        cluster = fleet({1: "a", 2: "b", 3: "a"}, {1: 10, 2: 200, 3: 100})
        options = RebalanceOptions(tolerance=0.5, rack_local=True)

        plan = plan_rebalance(sets((1,), (2,)), cluster, [1, 2, 3], sizes(30, 5), options)

        assert plan.after == sets((3,), (2,))

    def test_small_partitions_and_those_past_the_limit_stay(self) -> None:
        cluster = fleet({1: "a", 2: "b"}, {1: 10, 2: 200})
        current, size = sets((1,), (1,)), sizes(500, 20)

        by_limit = plan_rebalance(current, cluster, [1, 2], size, RebalanceOptions(partition_limit=1))
        by_size = plan_rebalance(current, cluster, [1, 2], size, RebalanceOptions(min_partition_mib=30 * 1024))

        assert by_limit.after == by_size.after == current

    def test_brokers_below_a_given_free_space_are_the_targets(self) -> None:
        cluster = fleet({1: "a", 2: "b", 3: "c"}, {1: 95, 2: 100, 3: 105})

        plan = plan_rebalance(sets((1,)), cluster, [1, 2, 3], sizes(1), RebalanceOptions(threshold_gib=101))

        assert plan.targets == (1, 2)

    def test_moves_that_make_nothing_more_even_are_left_out(self) -> None:
        cluster = fleet({1: "a", 2: "b"}, {1: 70, 2: 100})

        plan = plan_rebalance(sets((1,)), cluster, [1, 2], sizes(60), RebalanceOptions(tolerance=0.9, threshold=0.1))

        assert plan.after == sets((1,))
        assert plan.free_after == plan.free_before


class TestNewTopics:
    def test_partitions_are_added_beside_those_that_exist(self) -> None:
        cluster = fleet({1: "a", 2: "b", 3: "c"})
        first = assign_partitions("t", range(3), 2, cluster, PartitionMap({}))

        added = assign_partitions("t", range(3, 6), 2, cluster, first)

        everything = first.updated(added)
        assert list(added) == [key(3), key(4), key(5)]
        assert set(everything.replica_counts().values()) == {4}
        assert set(everything.leader_counts().values()) == {2}

    def test_more_replicas_than_brokers_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="3 replicas cannot be placed on 2 brokers"):
            assign_partitions("t", range(3), 3, fleet({1: "a", 2: "b"}), PartitionMap({}))

    def test_an_existing_partition_is_never_placed_again(self) -> None:
        with pytest.raises(InvalidInput, match="t partition 0 exists already"):
            assign_partitions("t", range(2), 1, fleet({1: "a", 2: "b"}), sets((1,)))

    def test_a_broker_two_replicas_ahead_passes_slots_on_even_through_another_broker(self) -> None:
        cluster = fleet({0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"})

        existing = PartitionMap({})
        for topic in ("a", "b", "c"):
            existing = existing.updated(assign_partitions(topic, range(4), 2, cluster, existing))

        assert set(existing.replica_counts().values()) == {4}
