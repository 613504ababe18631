"""Old intents on real replicas: absent, complete, and a block over two partitions of which one was written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from tenacity import stop_after_attempt

from blockhouse.errors import Blocked, Retryable
from blockhouse.metadata.model import InFlight
from blockhouse_aggregator.clickhouse import provenance
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.presence import (
    Absent,
    Ambiguous,
    Complete,
    Origin,
    Partial,
    Presence,
    StoredRows,
    decide,
)
from blockhouse_aggregator.clickhouse.provenance import stored_rows
from blockhouse_aggregator.clickhouse.quorum import QuorumProbe
from blockhouse_aggregator.clickhouse.quorum_nodes import abandon, read_quorum
from blockhouse_aggregator.clickhouse.tables import caught_up, describe
from blockhouse_aggregator.commands.block_decisions import rows_that_stay
from blockhouse_aggregator.coordination.znodes import Znodes
from e2e.stack import Stack
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.process import wait_until
from tests.integration.clickhouse_blocks import (
    CLUSTER,
    PARTITION,
    TOPIC,
    block,
    count,
    fetches_stopped,
    nodes,
    replica,
    rows,
    zookeeper,
)
from tests.integration.conftest import TableFactory

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]

BEGIN, END = 4, 7
EXPECTED = dict.fromkeys(range(BEGIN, END + 1), 2)
ORIGIN = Origin(CLUSTER, PARTITION, TOPIC)


def presence(r: Replica, name: str, origin: Origin = ORIGIN) -> Presence:
    table = describe(r, "default", name)
    assert table is not None
    return decide(EXPECTED, stored_rows(r, table, origin, BEGIN, END))


def test_a_block_is_absent_before_it_is_inserted_and_complete_after(stack: Stack, table: TableFactory) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    with replica(server) as r1:
        r1.insert_native(block(server, name, rows(BEGIN - 2, BEGIN - 1)))  # its neighbour
        assert presence(r1, name) == Absent()
        r1.insert_native(block(server, name, rows(BEGIN, END)))
        assert presence(r1, name) == Complete()


def test_the_newest_parts_are_asked_before_the_whole_table(
    stack: Stack, table: TableFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A takeover acknowledges what was stored last without a read of everything; absence is never proved by a part."""
    name, server = table(), stack.clickhouse[1, 1]
    server.execute(f"SYSTEM STOP MERGES {name}")
    asked: list[set[int]] = []

    def enough(stored: StoredRows) -> bool:
        asked.append(set(stored.counts))
        return bool(stored.counts)

    def found(begin: int, end: int) -> set[int]:
        return set(stored_rows(r1, described, ORIGIN, begin, end, enough=enough).counts)

    with replica(server) as r1:
        r1.insert_native(block(server, name, rows(BEGIN, END)))
        described = describe(r1, "default", name)
        assert described is not None
        assert found(BEGIN, END) == set(EXPECTED)
        assert asked == [], "the newest parts are all there is"

        r1.insert_native(block(server, name, rows(END + 1, END + 2)))
        monkeypatch.setattr(provenance, "NEWEST_ROWS", 7)  # the first part has eight
        assert found(END + 1, END + 2) == {END + 1, END + 2}
        assert found(BEGIN, END) == set(EXPECTED)
        assert found(END + 3, END + 9) == set()
    assert asked == [{END + 1, END + 2}, set(), set()]


def test_rows_of_another_topic_are_none_of_the_block(stack: Stack, table: TableFactory) -> None:
    """The same cluster, partition and offsets: of a topic that had the name before, or of another pipeline's."""
    name = table()
    server = stack.clickhouse[1, 1]
    with replica(server) as r1:
        r1.insert_native(block(server, name, rows(BEGIN, END), topic="events/before"))
        assert presence(r1, name) == Absent()
        r1.insert_native(block(server, name, rows(BEGIN, END), token="another"))
        assert presence(r1, name) == Complete()


def test_rows_that_name_no_topic_answer_for_their_like_alone(stack: Stack, table: TableFactory) -> None:
    """As in a table that got the column later: rows of a revision without it."""
    name = table()
    server = stack.clickhouse[1, 1]
    unnamed = Origin(CLUSTER, PARTITION)
    with replica(server) as r1:
        assert presence(r1, name, replace(unnamed, sole=False)) == Absent()
        r1.insert_native(block(server, name, rows(BEGIN, END), topic=""))
        assert presence(r1, name, unnamed) == Complete()
        assert presence(r1, name) == Absent()
        with pytest.raises(Blocked, match="name no topic") as undecided:
            presence(r1, name, replace(unnamed, sole=False))
        assert undecided.value.reason == "ProvenanceAmbiguous"


def test_a_table_without_the_column_answers_while_one_topic_is_all_there_was(stack: Stack, table: TableFactory) -> None:
    name = table(
        "id UInt64, text String, _kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64,"
        " _kafka_row UInt32",
        provenance=False,
    )
    server = stack.clickhouse[1, 1]
    values = [(row.id, row.text, CLUSTER, PARTITION, row.offset, row.row) for row in rows(BEGIN, END)]
    with replica(server) as r1:
        assert presence(r1, name, replace(ORIGIN, sole=False)) == Absent()
        server.execute(f"INSERT INTO {name} VALUES", values)
        assert wait_until(lambda: caught_up(r1, "default", name), timeout=60)
        assert presence(r1, name) == Complete()
        with pytest.raises(Blocked, match="name no topic"):
            presence(r1, name, replace(ORIGIN, sole=False))


def test_a_table_without_any_insert_answers_too(stack: Stack, table: TableFactory) -> None:
    name = table()
    with replica(stack.clickhouse[1, 2]) as r2:
        assert presence(r2, name) == Absent()


def test_rows_stored_twice_are_an_anomaly_beside_the_answer(stack: Stack, table: TableFactory) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    with replica(server) as r1:
        r1.insert_native(block(server, name, rows(BEGIN, END)))
        r1.insert_native(block(server, name, rows(END, END)))  # another block with the same messages
        assert presence(r1, name) == Complete({END: 2})


def test_of_a_block_half_written_over_two_partitions_exactly_the_missing_rows_are_named(
    stack: Stack, table: TableFactory
) -> None:
    # given a table in which the two rows of every message fall into different partitions
    name = table(partition_by="_kafka_row")
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    request = block(writer, name, rows(BEGIN, END), quorum_timeout=1.0)
    with replica(writer) as r1:
        # when the quorum of the first part is not met, so that the second is never written
        with fetches_stopped(other), pytest.raises(ServerFault):
            r1.insert_native(request)
        assert count(writer, name) == END - BEGIN + 1
        found = presence(r1, name)
        # then what is missing is one row of each message, and inserting just those completes the block
        assert isinstance(found, Partial)
        absent = [row for row in rows(BEGIN, END) if (row.offset, row.row) in found.missing]
        assert len(absent) == END - BEGIN + 1

        def completed() -> bool:
            try:
                r1.insert_native(block(writer, name, absent))
            except ServerFault:
                return False
            return True

        assert wait_until(completed, timeout=60)
        assert presence(r1, name) == Complete()


def test_without_row_numbers_half_a_message_is_ambiguous(stack: Stack, table: TableFactory) -> None:
    name = table(
        "id UInt64, _kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64",
        provenance=False,
    )
    server = stack.clickhouse[1, 1]
    server.execute(f"INSERT INTO {name} VALUES", [(1, CLUSTER, PARTITION, BEGIN)])
    with replica(server) as r1:
        # It reads its own entry of the replication log some time after it has answered.
        assert wait_until(lambda: caught_up(r1, "default", name), timeout=60)
        assert presence(r1, name) == Ambiguous((BEGIN,))


def test_without_provenance_columns_presence_cannot_be_known(stack: Stack, table: TableFactory) -> None:
    name = table(provenance=False)
    with replica(stack.clickhouse[1, 1]) as r1, pytest.raises(Blocked, match="_kafka_offset"):
        presence(r1, name)


def test_a_replica_that_lacks_a_part_does_not_answer(stack: Stack, table: TableFactory) -> None:
    name = table()
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    with replica(writer) as r1, replica(other) as r2, fetches_stopped(other):
        r1.insert_native(block(writer, name, rows(BEGIN, END), quorum=0))
        with pytest.raises(ServerFault) as behind:
            presence(r2, name)
    assert behind.value.fault is Fault.REPLICA


def test_rows_written_without_quorum_are_not_hidden(stack: Stack, table: TableFactory) -> None:
    # `select_sequential_consistency` hides what follows a partition's last quorum part: measured on 18.16
    name = table()
    server: ClickHouseServer = stack.clickhouse[1, 1]
    with replica(server) as r1:
        r1.insert_native(block(server, name, rows(BEGIN - 2, BEGIN - 1)))
        r1.insert_native(block(server, name, rows(BEGIN, END), quorum=0))
        assert wait_until(lambda: caught_up(r1, "default", name), timeout=60)
        assert presence(r1, name) == Complete()


@pytest.mark.parametrize("family", ["Summing", "Replacing"])
def test_rows_that_merged_answer_for_no_block(stack: Stack, table: TableFactory, family: str) -> None:
    """A block is stored, others follow and a merge leaves one row of all: "absent" would insert it once more."""
    name = table(family=family, order_by="text")
    server = stack.clickhouse[1, 1]
    with replica(server) as r1:
        found = describe(r1, "default", name)
        assert found is not None
        assert found.merges_rows
        with pytest.raises(Blocked, match="merges rows of different messages") as undecided:
            stored_rows(r1, found, ORIGIN, BEGIN, END)
    assert undecided.value.reason == "MergingEngine"


def test_rows_of_a_merging_engine_whose_key_names_their_message_answer(stack: Stack, table: TableFactory) -> None:
    key = "id, _kafka_cluster, _kafka_partition, _kafka_offset, _kafka_row, _kafka_topic"
    name = table(family="Replacing", order_by=key)
    server = stack.clickhouse[1, 1]
    with replica(server) as r1:
        assert presence(r1, name) == Absent()
        r1.insert_native(block(server, name, rows(BEGIN, END)))
        assert presence(r1, name) == Complete()


def test_rows_of_a_part_that_failed_do_not_count_where_a_replica_still_has_them(
    stack: Stack, table: TableFactory
) -> None:
    """As for seconds after a start: the part fails with the end of its writer's former session, and the writer removes
    it only when it becomes active again."""
    name = table()
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    with zookeeper(stack) as zk, replica(writer) as r1:
        probe = QuorumProbe(zk)
        assert probe.failed_parts(nodes(name)) == ()
        with fetches_stopped(other):
            with pytest.raises(ServerFault):
                r1.insert_native(block(writer, name, rows(BEGIN, END), quorum_timeout=1.0))  # 319: only it has the part
            waiting = read_quorum(Znodes(zk), nodes(name))
            (part,) = waiting.pending
            abandon(Znodes(zk), waiting, part)
            found = describe(r1, "default", name)
            assert found is not None
            assert wait_until(lambda: caught_up(r1, "default", name), timeout=10)

            failed = probe.failed_parts(nodes(name))
            assert failed == (part.name,)
            assert set(stored_rows(r1, found, ORIGIN, BEGIN, END).counts) == set(EXPECTED), "they are there"
            with pytest.raises(ServerFault, match="a part whose quorum failed") as refused:
                stored_rows(r1, found, ORIGIN, BEGIN, END, failed=failed)
            assert refused.value.fault is Fault.REPLICA
            assert stored_rows(r1, found, ORIGIN, END + 1, END + 2, failed=failed).counts == {}, "of another block"


def test_a_person_is_shown_no_rows_of_a_part_that_waits_for_its_quorum_or_failed(
    stack: Stack, table: TableFactory
) -> None:
    name, intent = table(), InFlight(BEGIN, END, 4, 1, 0, 0)
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    shown = cast(Any, rows_that_stay).retry_with(stop=stop_after_attempt(1))
    with zookeeper(stack) as zk, replica(writer) as r1, fetches_stopped(other):
        probe = QuorumProbe(zk)
        with pytest.raises(ServerFault):
            r1.insert_native(block(writer, name, rows(BEGIN, END), quorum_timeout=1.0))  # 319: only it has the part
        found = describe(r1, "default", name)
        with pytest.raises(Retryable, match="waits for its quorum"):
            shown(r1, probe, found, ORIGIN, intent)

        waiting = read_quorum(Znodes(zk), nodes(name))
        abandon(Znodes(zk), waiting, *waiting.pending)
        assert wait_until(lambda: caught_up(r1, "default", name), timeout=10)
        with pytest.raises(ServerFault, match="a part whose quorum failed"):
            shown(r1, probe, found, ORIGIN, intent)
