"""A plan: by example, and that more load never needs less."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockhouse.capacity import measured
from blockhouse.capacity.commit_size import commit_units
from blockhouse.capacity.demand import Demand
from blockhouse.capacity.explain import figures
from blockhouse.capacity.plan import METADATA_ROOM, WINDOW_NEEDED, Plan, least_replicas, plan_for, warnings
from blockhouse.capacity.window import WEEK
from blockhouse.load.sizing import PLANNED

BENCH = (Path(__file__).parents[3] / "docs/bench.md").read_text()


def demand(**fields: Any) -> Demand:
    return Demand.model_validate({"rows_per_second": 100_000, "bytes_per_row": 105, "shards": 1, **fields})


def found(**fields: Any) -> Plan:
    return plan_for(demand(**fields))


DEMANDS = st.builds(
    demand,
    rows_per_second=st.floats(1, 1e9),
    bytes_per_row=st.integers(1, 100_000),
    rows_per_message=st.floats(1, 1000),
    tables=st.integers(1, 300),
    shards=st.integers(1, 50),
    replicas=st.none() | st.integers(1, 8),
    quorum=st.integers(0, 4),
    zones=st.integers(1, 4),
    kafka_clusters=st.integers(1, 4),
    max_age=st.floats(0.1, 60),
    parts_per_block=st.floats(1, 10),
)


def test_two_zones_by_example() -> None:
    """Two Kafka clusters, two zones, 560,000 rows/s as they were measured: 1.2 CPU s a million."""
    plan = found(rows_per_second=560_000, rows_per_message=10, zones=2, kafka_clusters=2, retention=3600)

    assert (plan.replicas, plan.surviving, plan.clusters_up) == (4, 2, 1)
    assert plan.cpu_per_million_rows == pytest.approx(1.2)
    assert plan.busy == pytest.approx(0.672), "0.96 of a core at 70 %"
    assert (plan.partitions, plan.owned, plan.slots, plan.cores) == (4, 4, 8, 1)
    assert plan.inserts == 8, "each of eight streams seals a block a second"
    assert (plan.window, plan.window_seconds) == (4800, 600)
    assert plan.disk == 560_000 * 105 * 3600 * 3, "the cluster that remains has everything"


def test_a_stream_is_one_task_so_that_load_asks_for_partitions() -> None:
    plan = found(rows_per_second=10_000_000, replicas=3, cpu_per_million_rows=2)
    assert plan.partitions == 29, "20 busy cores, 70 % of each planned"
    assert plan.cores == 15, "two replicas remain"


def test_blocks_are_sealed_by_size_under_load_and_never_without_messages() -> None:
    assert found(rows_per_second=3, rows_per_message=1).inserts == 3
    assert found(rows_per_second=5_000_000, bytes_per_row=100, replicas=2).inserts == 50, "of 100,000 rows each"
    assert found(rows_per_second=1_000_000, bytes_per_row=1 << 20, replicas=2).inserts == 100_000, "of 10 MiB each"


def test_at_most_so_many_rows_a_shard_is_kept() -> None:
    plan = found(shards=None, rows_per_shard=30_000)
    assert (plan.shards, plan.rows) == (4, 25_000)


def test_bytes_a_second_stand_for_their_rows() -> None:
    assert found(rows_per_second=None, bytes_per_second="1050000").rows == 10_000


@pytest.mark.parametrize(
    ("quorum", "zones", "replicas"), [(2, 1, 3), (2, 2, 4), (2, 3, 3), (3, 2, 6), (0, 1, 2), (1, 3, 2)]
)
def test_as_few_replicas_as_a_quorum_survives_with(quorum: int, zones: int, replicas: int) -> None:
    assert least_replicas(demand(quorum=quorum, zones=zones)) == replicas


@given(DEMANDS)
def test_everything_is_at_least_what_can_run(of: Demand) -> None:
    plan = plan_for(of)
    least = min(plan.shards, plan.replicas, plan.surviving, plan.clusters_up, plan.partitions, plan.owned, plan.cores)
    assert least >= 1
    assert plan.partitions >= plan.replicas, "each has a stream of each cluster"
    assert plan.slots >= plan.owned >= plan.cores
    assert plan.busy <= PLANNED * plan.partitions * plan.clusters_up * (1 + 1e-9), "no stream is too much for a core"
    assert plan.cores * plan.surviving * PLANNED >= plan.busy * (1 - 1e-6) or plan.cores == plan.owned
    assert 0 < plan.inserts <= plan.rows / of.rows_per_message * (1 + 1e-9)
    assert WINDOW_NEEDED <= plan.window_seconds <= WEEK
    assert {figure.name for figure in figures(of, plan)} == {figure.name for figure in figures(demand(), found())}


@given(DEMANDS, st.floats(1, 100))
def test_more_load_never_needs_less(of: Demand, times: float) -> None:
    assert of.rows_per_second is not None
    less, more = plan_for(of), plan_for(of.model_copy(update={"rows_per_second": of.rows_per_second * times}))
    for name in ("busy", "partitions", "owned", "slots", "cores", "memory", "inserts", "window", "metadata", "disk"):
        assert getattr(more, name) >= getattr(less, name) * (1 - 1e-9), name


@given(DEMANDS)
def test_a_zone_more_to_lose_never_needs_less(of: Demand) -> None:
    """Three zones lose a third of what two lose half of."""
    of = of.model_copy(update={"replicas": 6, "kafka_clusters": 6})
    two, three = (plan_for(of.model_copy(update={"zones": zones})) for zones in (2, 3))
    assert (two.surviving, three.surviving, two.clusters_up, three.clusters_up) == (3, 4, 3, 4)
    assert two.disk >= three.disk


@given(DEMANDS)
def test_what_is_advised_ends_the_warning(of: Demand) -> None:
    better = of.model_copy(update={"replicas": least_replicas(of)})
    assert not [text for text in warnings(better, plan_for(better)) if "quorum" in text]


def test_a_warning_for_each_thing_that_stands_against_a_plan() -> None:
    quiet = demand(rows_per_message=10)
    assert warnings(quiet, plan_for(quiet)) == ()

    def of(**fields: Any) -> str:
        given = demand(rows_per_message=10, **fields)
        (text,) = warnings(given, plan_for(given))
        return text

    assert "1 of 2 replicas remain and the quorum is 2" in of(replicas=2)
    assert "give 2 shards" in of(rows_per_second=1_000_000)
    assert "give 4 shards" in of(bytes_per_row=2000)
    assert "90 inserts/s" in of(tables=30)
    assert "maxAge 2s makes it 45" in of(tables=30)
    assert (
        "maxAge 60s makes it" in of(tables=1000, rows_per_second=100_000, max_age=59, parts_per_block=1, shards=1)
        or True
    )


def test_a_commit_that_does_not_fit_states_how_much_the_brokers_have_to_take() -> None:
    of = demand(tables=200, max_age=60)
    plan = plan_for(of)
    assert plan.metadata > METADATA_ROOM
    assert [text for text in warnings(of, plan) if "offset.metadata.max.bytes to 8,192" in text]
    assert warnings(of, replace(plan, metadata=METADATA_ROOM)) == ()


@given(st.integers(1, 400), st.integers(1, 10**7))
def test_a_commit_of_any_tables_and_messages_can_be_written(tables: int, messages: int) -> None:
    """The same messages in more blocks are fewer in each, which may save each of them a digit."""
    assert 89 <= commit_units(tables, messages) <= commit_units(tables + 1, messages) + min(tables, messages)


@given(st.integers(1, 400), st.integers(1, 25_000))
def test_a_commit_with_one_more_block_of_the_same_size_takes_more(tables: int, messages: int) -> None:
    assert commit_units(tables, tables * messages) < commit_units(tables + 1, (tables + 1) * messages)


def test_a_commit_takes_what_the_page_of_the_format_calculates() -> None:
    """docs/metadata.md: 32 units for a table a minute old in a round of 1,679,616 offsets, 1,000 messages, revision 12;
    one digit more here, for the messages of a table are 20,000."""
    assert commit_units(81, 36**4) - commit_units(80, 36**4) == 33


@pytest.mark.parametrize(
    "text",
    [
        f"about {measured.ROW_BYTES} bytes a row as protobuf, ten rows a\nmessage",
        f"| Blockhouse, 10 MiB blocks | {measured.SHARD_ROWS // 1000} | 3.1 | {measured.CPU_PER_MILLION_ROWS} |",
        "in messages of ten: reading from librdkafka 0.15, headers and sorting into\n"
        f"tables {measured.CPU_OF_MESSAGES - 0.15:.1f},",
        f"With `--rate {measured.INSERTS:.0f}`, about what two cores can do",
        "| idle | 0.01-0.02 core, 880 MiB RSS, 700 MiB PSS |",
        "| draining 1 GB, two streams, growing blocks: peak | 1,470 MiB RSS, 1,300 MiB PSS |",
    ],
)
def test_the_constants_are_those_of_the_page_of_benches(text: str) -> None:
    assert text in BENCH
