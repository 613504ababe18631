"""The plan of a demonstration: the same for the same seed, and worth showing for every seed."""

from __future__ import annotations

import pytest

from blockhouse.schema.model import PROVENANCE_COLUMNS
from blockhouse.schema.parse import parse_type
from e2e.demo.scenario import ROWS_PER_MESSAGE, SECONDS, TRICKLE, TRICKLE_EVERY, plan
from e2e.kit.tables import TABLES

SEEDS = range(50)


def test_the_seed_decides_everything() -> None:
    assert plan(7, 300_000, 4) == plan(7, 300_000, 4)
    assert len({plan(seed, 300_000, 4) for seed in SEEDS}) == len(SEEDS)


def test_every_seed_kills_before_it_freezes_and_ends_both_while_rows_are_produced() -> None:
    for scenario in (plan(seed, 300_000, 2) for seed in SEEDS):
        assert 0 < scenario.kill.at < scenario.create_late_at < scenario.freeze.at
        assert scenario.freeze.at + scenario.freeze_seconds < SECONDS


def test_the_first_to_be_frozen_is_not_the_first_to_be_killed_and_every_replica_may_be_either() -> None:
    for scenario in (plan(seed, 300_000, 3) for seed in SEEDS):
        assert scenario.kill.candidates[0] != scenario.freeze.candidates[0]
        assert sorted(scenario.kill.candidates) == sorted(scenario.freeze.candidates) == ["r1", "r2", "r3"]
    assert {plan(seed, 300_000, 3).kill.candidates[0] for seed in SEEDS} == {"r1", "r2", "r3"}


def test_all_rows_are_produced_and_one_table_gets_a_message_every_few_seconds() -> None:
    load = plan(1, 300_005, 2).load

    assert load.messages * ROWS_PER_MESSAGE >= 300_005
    share = load.tables[f"default.{TRICKLE}"] / sum(load.tables.values())
    assert share * load.rate == pytest.approx(1 / TRICKLE_EVERY, rel=0.02)


def test_the_busiest_of_six_tables_has_twelve_columns_of_mixed_types_and_one_table_comes_late() -> None:
    busiest = max(TABLES, key=lambda table: table.share)

    assert len(TABLES) == 6
    assert [table.late for table in TABLES].count(True) == 1
    assert len(busiest.columns) == 12
    assert len({type_ for _, type_ in busiest.columns}) >= 10


def test_the_late_table_is_described_as_clickhouse_will_describe_it() -> None:
    for table in TABLES:
        revision = table.revision
        assert [column.name for column in revision.columns][-5:] == list(PROVENANCE_COLUMNS)
        assert [(c.name, c.type) for c in revision.row] == list(table.columns)
        for column in revision.columns:
            parse_type(column.type)


def test_a_single_replica_has_no_other_to_take_over() -> None:
    with pytest.raises(ValueError, match="2 replicas or more, not 1"):
        plan(1, 300_000, 1)
