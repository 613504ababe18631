"""All simulated programs of a cluster: whatever a change touches, each group's streams belong to its living members."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from blockhouse.config.pipeline import AggregatorConfig
from e2e.simulator.world import Key, Program, World

SHARDS, REPLICAS, PARTITIONS = ("0", "1"), ("a", "b", "c"), 3
BROKERS = {"east": "127.0.0.1:1", "west": "127.0.0.1:2"}
KEYS = [("ns", f"events-{shard}-{replica}") for shard in SHARDS for replica in REPLICAS]


def _program(key: Key, uid: str, clusters: tuple[str, ...]) -> Program:
    shard = key[1].split("-")[1]
    kafka: dict[str, Any] = {"topic": f"events-{shard}", "group": f"events-{shard}"}
    kafka["clusters"] = [{"name": name, "bootstrapServers": BROKERS[name]} for name in clusters]
    content = {"pipeline": "events", "shard": shard, "replica": key[1], "kafka": kafka}
    config = AggregatorConfig.model_validate(content | {"zookeeper": {"servers": "127.0.0.1:3"}})
    return Program(uid=uid, config=config, token=None)


changes = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(KEYS), st.sampled_from([("east",), ("east", "west"), ("west",)])),
    st.tuples(st.sampled_from(["drop", "end", "begin"]), st.sampled_from(KEYS)),
    st.tuples(st.just("suspend"), st.sampled_from(SHARDS), st.booleans()),
    st.tuples(st.just("learn"), st.sampled_from(SHARDS), st.integers(0, PARTITIONS)),
)


@given(st.lists(changes, max_size=25))
def test_after_any_change_each_partition_belongs_to_a_living_member_of_its_group(history: list[Any]) -> None:
    world = World()
    partitions = {(servers, f"events-{shard}"): PARTITIONS for servers in BROKERS.values() for shard in SHARDS}
    world.learn(partitions, now=0)
    for key in KEYS:
        world.put(key, _program(key, "uid", tuple(BROKERS)), now=0)
    for number, (kind, what, *how) in enumerate(history):
        match kind:
            case "put":
                world.put(what, _program(what, f"uid-{number}", how[0]), now=number)
            case "drop" if what in world.programs:
                world.drop(what, world.programs[what].uid, now=number)
            case "end" if what in world.programs:
                world.tables_of(what).restarts += 1
                world.end(what, world.tables_of(what).restarts, now=number)
            case "begin":
                world.begin(what, now=number)
            case "suspend":
                world.suspend(("ns", f"events-{what}"), how[0], now=number)
            case "learn":
                partitions |= {(servers, f"events-{what}"): how[0] for servers in BROKERS.values()}
                world.learn(partitions, now=number)
        for shard in SHARDS:
            for cluster, servers in BROKERS.items():
                _check(world, shard, cluster, partitions[servers, f"events-{shard}"])


def _check(world: World, shard: str, cluster: str, partitions: int) -> None:
    owned: list[int] = []
    consumers = 0
    for key, program in world.programs.items():
        assert isinstance(program.config, AggregatorConfig)
        if program.config.shard != shard or key in world.down:
            continue
        found = [each.stream.partition for each in world.owned(key) if each.stream.cluster == cluster]
        consumes = cluster in [each.name for each in program.config.kafka.clusters] and not world.is_suspended(key)
        assert consumes or not found
        consumers += consumes
        owned += found
    assert sorted(owned) == (list(range(partitions)) if consumers else [])
