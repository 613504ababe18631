"""Parts that every replica has lost raise an alarm each time, and name the command that loads their rows again. Series
are of tables that are loaded, for as long as the replica has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from structlog.testing import capture_logs

from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.tables.replication import ReplicationWatch


@dataclass
class Shard:
    lost: dict[str, int] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=lambda: {"default.t": 3})

    async def queue_lengths(self) -> Mapping[str, int]:
        return self.queues

    async def lost_parts(self) -> Mapping[str, int]:
        return self.lost


async def alarms(watch: ReplicationWatch) -> list[str]:
    with capture_logs() as logged:
        await watch.look({"default.t", "default.u"})
    return [entry["message"] for entry in logged if entry["event"] == "alarm"]


async def test_each_part_that_is_lost_is_an_alarm_that_names_the_repair() -> None:
    shard, figures = Shard({"default.t": 0}), Figures()
    watch = ReplicationWatch(shard, figures)
    assert await alarms(watch) == []

    shard.lost = {"default.t": 2}
    (text,) = await alarms(watch)
    assert "lost 2 parts of table default.t" in text
    assert "`blockhouse repair`" in text
    assert await alarms(watch) == []

    value = figures.registry.get_sample_value
    assert value("blockhouse_alarms_total", {"reason": "ReplicatedDataLoss"}) == 2
    assert value("blockhouse_lost_parts", {"table": "default.t"}) == 2
    assert value("blockhouse_replication_queue_entries", {"table": "default.t"}) == 3


async def test_what_was_lost_before_is_reported_once_and_is_no_new_alarm() -> None:
    figures = Figures()
    watch = ReplicationWatch(Shard({"default.t": 1}), figures)
    (text,) = await alarms(watch)
    assert "at some time" in text
    assert figures.registry.get_sample_value("blockhouse_alarms_total", {"reason": "ReplicatedDataLoss"}) is None


async def test_a_servers_own_number_begins_again_with_the_server() -> None:
    """18.16 counts since its start, the parts of all tables together."""
    shard, figures = Shard({"*": 2}), Figures()
    watch = ReplicationWatch(shard, figures)
    await alarms(watch)
    shard.lost = {"*": 0}
    assert await alarms(watch) == []
    shard.lost = {"*": 1}
    (text,) = await alarms(watch)
    assert "lost 1 parts of some table of this server" in text


def shown(figures: Figures, name: str) -> dict[str, float]:
    """The series of a family, by table."""
    families = {family.name: family for family in figures.registry.collect()}
    return {sample.labels["table"]: sample.value for sample in families[name].samples}


async def test_tables_that_are_not_loaded_have_no_series_and_raise_no_alarm() -> None:
    figures = Figures()
    shard = Shard({"default.t": 0, "other.t": 4, "*": 1}, {"default.t": 3, "other.t": 99})
    (text,) = await alarms(ReplicationWatch(shard, figures))

    assert "some table of this server" in text
    assert shown(figures, "blockhouse_replication_queue_entries") == {"default.t": 3}
    assert shown(figures, "blockhouse_lost_parts") == {"default.t": 0, "*": 1}


async def test_the_series_of_a_table_that_was_dropped_end_at_the_next_look() -> None:
    figures = Figures()
    shard = Shard({"default.t": 0, "default.u": 2}, {"default.t": 3, "default.u": 60})
    watch = ReplicationWatch(shard, figures)
    await alarms(watch)
    assert shown(figures, "blockhouse_replication_queue_entries") == {"default.t": 3, "default.u": 60}

    del shard.queues["default.u"], shard.lost["default.u"]
    await alarms(watch)

    assert shown(figures, "blockhouse_replication_queue_entries") == {"default.t": 3}
    assert shown(figures, "blockhouse_lost_parts") == {"default.t": 0}


async def test_a_table_that_was_missing_for_a_moment_raises_no_alarm_for_what_was_known() -> None:
    """A server that has just started does not list all of its tables yet."""
    shard, figures = Shard({"default.t": 2}), Figures()
    watch = ReplicationWatch(shard, figures)
    await alarms(watch)
    shard.lost = {}
    await alarms(watch)
    shard.lost = {"default.t": 3}

    (text,) = await alarms(watch)
    assert "lost 1 parts of table default.t" in text
    assert figures.registry.get_sample_value("blockhouse_alarms_total", {"reason": "ReplicatedDataLoss"}) == 1
