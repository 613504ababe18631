"""Quorums stuck on purpose, on real servers: named, refused while rows could be lost, cleared when not, and the
pipeline continues exactly. ROUNDS=10 repeats it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from blockhouse.config.endpoints import ZooKeeper
from blockhouse_aggregator.clickhouse.quorum_nodes import abandon, read_quorum
from blockhouse_aggregator.clickhouse.stuck import Abandon, Cause, QuorumState, diagnose
from blockhouse_aggregator.commands.quorum import REFUSED, app
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.coordination.znodes import VersionConflict
from e2e.stack import Stack, StackSpec
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.tables import zookeeper_path
from tests.integration.runtime_pipeline import Loading, eventually, healed, loading

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900), pytest.mark.clickhouse]

ROUNDS = int(os.environ.get("ROUNDS", "1"))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Three replicas, so that a quorum remains without the writer; sessions of the dead end after eight seconds."""
    spec = StackSpec(kafka_clusters=1, replicas=3, clickhouse_zk_timeout_ms=8000)
    with Stack(tmp_path_factory.mktemp("three"), spec) as stack:
        yield stack


@pytest.fixture(scope="module")
def pipeline(three: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(three, tmp_path_factory.mktemp("quorum"), "quorum", partitions=1, aggregators=2) as found:
        yield found


@pytest.fixture
def run(pipeline: Loading) -> Iterator[Loading]:
    with healed(pipeline) as found:
        yield found


def quorum(run: Loading, command: str, *arguments: str, asking: str = "r1") -> Result:
    """`blockhouse quorum COMMAND` with the configuration of replica `asking`."""
    config = run.pipeline.aggregators[asking].folder / "aggregator.yaml"
    return CliRunner().invoke(app, [command, *arguments, "--config", str(config)], catch_exceptions=False)


def causes(run: Loading, table: str, asking: str = "r1") -> list[str]:
    found = json.loads(quorum(run, "inspect", table, "--json", asking=asking).stdout)
    return [part["cause"] for part in found[0]["pending"]]


def state(run: Loading, table: str) -> QuorumState:
    with Session(ZooKeeper(servers=run.stack.zookeeper.connect)) as session:
        return read_quorum(session.znodes, zookeeper_path("01", table.partition(".")[2]))


def writer(run: Loading, table: str) -> ClickHouseServer:
    """The replica that wrote the part that waits."""
    (part,) = state(run, table).pending
    (name,) = part.listed
    return next(server for server in run.stack.clickhouse.values() if server.replica == name)


def askers(run: Loading, table: str) -> list[str]:
    """The replicas that have the part that waits in their queues, to fetch it."""
    found = state(run, table)
    (part,) = found.pending
    return [replica.name for replica in found.replicas if part.name in replica.queued - replica.holds]


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_part_of_a_lost_writer_is_refused_while_it_may_return_and_abandoned_after(run: Loading, number: int) -> None:
    started = time.time()
    table = run.feed.table(f"lost_{number}")
    run.feed.send(table, 2)
    run.settle(table)
    assert quorum(run, "inspect", table).exit_code == 0
    newest = max(a.metric("blockhouse_last_insert_timestamp_seconds", table=table) for a in run.aggregators)
    assert started - 1 <= newest <= time.time()

    for server in run.stack.clickhouse.values():
        server.execute(f"SYSTEM STOP FETCHES {table}")
    run.feed.send(table, 2)
    run.wait("a part without quorum", lambda: run.written_without_quorum(table))
    lost = writer(run, table)
    asking = next(name for name in run.pipeline.aggregators if name != lost.replica)
    run.wait("named", lambda: causes(run, table, asking) == [Cause.NOT_FETCHED])
    named = quorum(run, "inspect", table, asking=asking)
    assert named.exit_code == 1
    behind = run.pipeline.aggregators[asking]
    run.wait("the queue seen", lambda: behind.metric("blockhouse_replication_queue_entries", table=table) > 0)
    # Only the replica that asks is ordered to fetch again, and without both that are left there is no quorum.
    run.wait("both others asking", lambda: sorted(askers(run, table)) == sorted({"r1", "r2", "r3"} - {lost.replica}))
    # in the words of 18.16 and of 26.9
    assert re.search("Fetching of part was cancelled|replicated fetches are cancelled", named.stdout)
    refused = quorum(run, "repair", table, "--yes", asking=asking)
    assert (refused.exit_code, state(run, table).failed) == (REFUSED, ()), refused.stdout
    assert "giving it up would lose its rows" in refused.stdout

    lost.kill()
    still = quorum(run, "repair", table, "--yes", asking=asking)
    assert still.exit_code == REFUSED, still.stdout  # its session has not ended: it may be slow only
    # With the writer gone a server that tries the entry again finds the part nowhere and abandons it by itself, also
    # with its fetches stopped: that may happen before the command comes to it, and is the same end.
    run.wait("the writer's session over", lambda: causes(run, table, asking) in ([Cause.WRITER_LOST], []))
    dry = quorum(run, "repair", table, asking=asking)
    assert dry.exit_code == 0, dry.stdout
    assert "Nothing was changed" in dry.stdout or "nothing to do" in dry.stdout
    done = quorum(run, "repair", table, "--yes", asking=asking)
    assert done.exit_code == 0, done.stdout
    assert len(state(run, table).failed) == 1

    # A part that was abandoned before the command came to it left no replica to order to fetch again.
    for server in run.stack.clickhouse.values():
        if server is not lost:
            server.execute(f"SYSTEM START FETCHES {table}")
    # The two that are left take the rows in; the lost one throws its copy away when it is back.
    run.wait("everything loaded without the writer", run.pipeline.quiet, 90)
    run.feed.send(table, 2)
    run.stack.heal()
    run.settle(table)
    assert quorum(run, "inspect", table, asking=asking).exit_code == 0


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_part_whose_partition_was_dropped_blocks_its_table_until_it_is_abandoned(run: Loading, number: int) -> None:
    table = run.feed.table(f"dropped_{number}", "id UInt64, text String", partition_by="intDiv(id - 1, 3)")
    servers = list(run.stack.clickhouse.values())
    run.feed.send(table, 1)
    run.settle(table)
    for server in servers:
        server.execute(f"SYSTEM STOP FETCHES {table}")
    run.feed.send(table, 1)
    run.wait("a part without quorum", lambda: run.written_without_quorum(table))
    (part,) = state(run, table).pending
    writer(run, table).execute(f"ALTER TABLE {table} DROP PARTITION ID '{part.name.partition('_')[0]}'")
    for server in servers:
        server.execute(f"SYSTEM START FETCHES {table}")

    run.wait("named", lambda: causes(run, table) == [Cause.ORPHANED])
    before = sum(a.metric("blockhouse_insert_failures_total", table=table, code="286") for a in run.aggregators)
    run.wait(
        "the table to be refused",
        lambda: (
            sum(a.metric("blockhouse_insert_failures_total", table=table, code="286") for a in run.aggregators) > before
        ),
    )
    assert quorum(run, "inspect", table).exit_code == 1
    dry = quorum(run, "repair", table)
    assert (dry.exit_code, state(run, table).failed) == (0, ()), dry.stdout
    done = quorum(run, "repair", table, "--yes")
    assert done.exit_code == 0, done.stdout

    run.settle(table)
    run.feed.send(table, 1)
    run.settle(table)
    assert eventually(lambda: quorum(run, "inspect", table).exit_code == 0)


def test_rows_of_a_part_that_failed_are_not_taken_for_stored_while_its_writer_has_them(run: Loading) -> None:
    """As for seconds after a start: it answers before its former session is over, the end of which makes the part fail,
    and removes what has failed when it becomes active. Here it becomes active while the failure is hidden from it."""
    table = run.feed.table("kept")
    run.feed.send(table, 2)
    run.settle(table)
    with run.fetches_stopped(table):
        run.feed.send(table, 2)
        run.wait("a part without quorum", lambda: run.written_without_quorum(table))
        lost = writer(run, table)
        (part,) = state(run, table).pending
        for aggregator in run.aggregators:
            aggregator.kill()
        lost.kill()
    run.wait("the part failed", lambda: state(run, table).failed == (part.name,))
    with run.fetches_stopped(table):  # else the others would have it from a writer that seems to be active with it
        with Session(ZooKeeper(servers=run.stack.zookeeper.connect)) as session:
            failure = f"{zookeeper_path('01', table.partition('.')[2])}/quorum/failed_parts/{part.name}"
            session.znodes.delete(failure)
            lost.start()
            run.wait("the writer active", lambda: all(replica.active for replica in state(run, table).replicas))
            session.znodes.create(failure, b"")

        asking = run.pipeline.aggregators[lost.replica]
        asking.start()

        def refused() -> bool:
            return any("quorum failed" in line["why"] for line in asking.logged("block.insert_failed"))

        run.wait("its rows refused", refused)
        assert not run.pipeline.quiet()
        lost.execute(f"SYSTEM RESTART REPLICA {table}")
    run.settle(table)


def test_parts_of_current_servers_are_read_and_abandoned_unless_a_replica_came_back(three: Stack) -> None:
    """Current servers keep a node per part and more kinds of hashes; the test writes them to a real ZooKeeper."""
    path = "/current/table"
    with Session(ZooKeeper(servers=three.zookeeper.connect)) as session:
        znodes = session.znodes
        for name in ("r1", "r2"):
            znodes.create(f"{path}/replicas/{name}/host", b"host: ch\nport: 9009\ntcp_port: 9000\n")
            znodes.create(f"{path}/replicas/{name}/log_pointer", b"2")
            znodes.create(f"{path}/replicas/{name}/is_active", b"")
        znodes.create(f"{path}/log/log-0000000000", b"format version: 4\nget\nall_7_7_0\nquorum: 2\n")
        znodes.create(f"{path}/quorum/failed_parts", b"")
        for part in ("all_7_7_0", "all_8_8_0"):
            text = (
                f"version: 1\npart_name: {part}\nrequired_number_of_replicas: 2\n"
                "actual_number_of_replicas: 1\nreplicas:\nr1\n"
            )
            znodes.create(f"{path}/quorum/parallel/{part}", text.encode())
        znodes.create(f"{path}/async_blocks/one", b"all_7_7_0")
        znodes.create(f"{path}/deduplication_hashes/two", b"all_7_7_0")
        znodes.create(f"{path}/replicas/r1/parts/all_8_8_0", b"")
        seen = read_quorum(znodes, path)
        now = seen.pending[0].since_ms + 60_000
        orphan, held = diagnose(seen, now, 30)
        assert (orphan.part.name, orphan.cause, orphan.remedy) == ("all_7_7_0", Cause.ORPHANED, Abandon())
        assert (held.part.name, held.cause, held.remedy) == ("all_8_8_0", Cause.NOT_FETCHED, None)

        host = znodes.get(f"{path}/replicas/r2/host")
        assert host is not None
        znodes.write(f"{path}/replicas/r2/host", host.data, host.version)  # as a replica does that becomes active
        with pytest.raises(VersionConflict):
            abandon(znodes, seen, orphan.part)
        assert len(read_quorum(znodes, path).pending) == 2

        abandon(znodes, read_quorum(znodes, path), orphan.part)
        after = read_quorum(znodes, path)
        assert ([part.name for part in after.pending], after.failed) == (["all_8_8_0"], ("all_7_7_0",))
        assert znodes.children(f"{path}/async_blocks") + znodes.children(f"{path}/deduplication_hashes") == []
