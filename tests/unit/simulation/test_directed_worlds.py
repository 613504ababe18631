"""The real driver in simulated worlds that are steered by hand: what takes minutes on a clock takes none here."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.run import Universe, setting_of, universe
from tests.simulation.world import Chances, Setting

CALM = replace(
    setting_of(0), clusters=1, partitions=1, replicas=2, tables=2, faults=0, window=100, window_seconds=3600, split=1,
    quorum_timeout=2.0, session_timeout=6.0, max_age=0.3, metadata_units=4095, slots=8, lease=5.0, chances=Chances(),
    zoned=False,
)  # fmt: skip


def produced(made: Universe, table: int, count: int) -> None:
    made.clusters["a"].logs[0].kinds.extend([table] * count)


def stored(made: Universe, table: int) -> int:
    return sum(part.safe for part in made.shard.tables[table].rows.values())


def given(**changes: object) -> Setting:
    return replace(CALM, **changes)  # type: ignore[arg-type]


def test_a_table_whose_quorum_hangs_does_not_stop_its_stream_when_a_lease_ends() -> None:
    """Its block waits for the quorum without an insert: the lease was over and waited with it, up to three minutes."""
    with universe(given()) as made:
        made.run(3)
        made.shard.tables[0].fetches_stopped = True
        produced(made, 0, 3)
        for _ in range(120):
            produced(made, 1, 1)
            made.run(1)
            assert made.world.harm is None
            late = made.clusters["a"].logs[0].kinds.count(1) - stored(made, 1)
            assert late <= 30, f"{late} messages of the other table wait at {made.world.loop.time():.0f} s"
        assert stored(made, 0) == 0
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 3


def test_an_owner_killed_at_any_moment_leaves_nothing_undone() -> None:
    with universe(given(replicas=2)) as made:
        made.run(3)
        for _ in range(5):
            produced(made, 0, 4)
            made.run(0.4)
            for node in made.nodes:
                node.kill()
                made.world.later(1.0, node.start)
            made.run(4)
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 20


def test_streams_go_to_another_replica_when_the_local_one_is_gone() -> None:
    """`handoverAfter`: the aggregator lives, its ClickHouse does not."""
    with universe(given(replicas=3)) as made:
        made.run(3)
        owner = next(node for node in made.nodes if node.name == made.clusters["a"].owner(0))
        owner.server.kill()
        produced(made, 0, 4)
        assert made.run(60, lambda: stored(made, 0) == 4), "nobody took the stream over"
        assert made.clusters["a"].owner(0) != owner.name
        owner.server.start()
        made.settle()
        assert made.world.harm is None
