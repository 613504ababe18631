"""The acknowledgement rule and the deduplication window, on real replicas and their real ZooKeeper nodes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kazoo.client import KazooClient

from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.errors import ServerFault
from blockhouse_aggregator.clickhouse.model import InsertRequest
from blockhouse_aggregator.clickhouse.quorum import (
    HASH_DIRECTORIES,
    UNKNOWN,
    QuorumProbe,
    acknowledgeable,
    window_certain,
)
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.clickhouse_blocks import block, count, fetches_stopped, nodes, replica, rows, zookeeper
from tests.integration.conftest import Names, TableFactory

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]


def stored(replica: Replica, request: InsertRequest) -> bool:
    """One attempt; a retryable error is False."""
    try:
        return replica.insert_native(request).elapsed > 0
    except ServerFault:
        return False


def hashes(zk: KazooClient, table: str) -> list[str]:
    """Nodes of the table's deduplicated parts, wherever this server keeps them."""
    directories = [f"{nodes(table)}/{name}" for name in HASH_DIRECTORIES]
    return [f"{path}/{name}" for path in directories if zk.exists(path) for name in zk.get_children(path)]


def test_an_early_ok_for_a_block_that_waits_for_its_quorum_does_not_acknowledge(
    stack: Stack, table: TableFactory
) -> None:
    name = table()
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    request = block(writer, name, rows(1, 10), quorum_timeout=1.0)
    with zookeeper(stack) as zk, replica(writer) as r1, replica(other) as r2:
        probe = QuorumProbe(zk)
        before = probe.snapshot(nodes(name))
        with fetches_stopped(writer, other):
            assert not stored(r1, request)  # 319: written, quorum unmet
            # Without quorum the server answers "ok" at once to the copy of a pending block, as it does to the loser
            # of a race between two quorum inserts.
            early = r2.insert_native(block(writer, name, rows(1, 10), quorum=0))
            during = probe.snapshot(nodes(name))
        assert early.deduplicated
        assert during.pending
        assert not acknowledgeable(before, during)

        assert wait_until(lambda: not probe.snapshot(nodes(name)).pending, timeout=60)
        assert stored(r2, request)
        assert acknowledgeable(before, probe.snapshot(nodes(name)))
    assert (count(writer, name), count(other, name)) == (20, 20)


def test_a_part_whose_writer_is_lost_shows_as_failed_and_the_resend_stores_it_exactly_once(
    stack: Stack, table: TableFactory
) -> None:
    name = table()
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    request = block(writer, name, rows(1, 10), quorum_timeout=1.0)
    intent_ms = int(time.time() * 1000)
    with zookeeper(stack) as zk, replica(other) as r2:
        probe = QuorumProbe(zk)
        with fetches_stopped(other):
            with replica(writer) as r1:
                assert not stored(r1, request)  # 319: only the writer has it
            before = probe.snapshot(nodes(name))
            assert before.pending
            writer.kill()
        # The other replica gives the part up when the writer's session has expired.
        assert wait_until(lambda: not probe.snapshot(nodes(name)).pending, timeout=60)
        after = probe.snapshot(nodes(name))
        assert not acknowledgeable(before, after)
        assert hashes(zk, name) == []  # its hash is gone: a resend is no duplicate
        # While it was there it may have pushed another out of the window: it counts indefinitely.
        assert probe.blocks_since(nodes(name), intent_ms - 1000) == 1

        writer.start()
        assert wait_until(lambda: stored(r2, request), timeout=60)
        assert acknowledgeable(after, probe.snapshot(nodes(name)))
    assert wait_until(lambda: (count(writer, name), count(other, name)) == (20, 20), timeout=60)


def test_a_block_is_certain_until_the_window_may_have_dropped_it(stack: Stack, table: TableFactory) -> None:
    window = 6
    name = table(settings={"replicated_deduplication_window": window})
    server = stack.clickhouse[1, 1]
    intent_ms = int(time.time() * 1000)

    with zookeeper(stack) as zk, replica(server) as r1:
        probe = QuorumProbe(zk)

        def certain() -> bool:
            since = probe.blocks_since(nodes(name), intent_ms - 1000)
            return window_certain(intent_ms, int(time.time() * 1000), since, window, 604_800, clock_skew=1.0)

        answers = []
        for n in range(5):
            r1.insert_native(block(server, name, rows(n, n)))
            answers.append(certain())
    assert answers == [True, True, True, False, False]


def test_only_entries_since_the_given_time_are_counted(stack: Stack, table: TableFactory) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    with zookeeper(stack) as zk, replica(server) as r1:
        probe = QuorumProbe(zk)
        r1.insert_native(block(server, name, rows(1, 1)))
        (old,) = hashes(zk, name)
        made = zk.get(old)[1].ctime
        r1.insert_native(block(server, name, rows(2, 2)))
        assert probe.blocks_since(nodes(name), made) == 2
        assert probe.blocks_since(nodes(name), made + 1) == 1
        assert probe.blocks_since(nodes("no_such_table"), 0) == UNKNOWN


def test_a_layout_of_another_version_is_never_certain(stack: Stack, names: Names) -> None:
    path = f"{names.zookeeper_root}/layout"
    with zookeeper(stack) as zk:
        probe = QuorumProbe(zk)
        for known in ("blocks", "block_numbers", "async_blocks", "nonincrement_block_numbers", "metadata"):
            zk.ensure_path(f"{path}/{known}")
        assert probe.blocks_since(path, 0) == 0
        zk.create(f"{path}/deduplication_hashes/all_1_1", makepath=True)
        assert probe.blocks_since(path, 0) == 1
        zk.ensure_path(f"{path}/deduplication_ids")
        assert probe.blocks_since(path, 0) == UNKNOWN


def test_entries_are_asked_for_their_age_once_and_not_while_all_are_few_enough(stack: Stack, names: Names) -> None:
    """Reading the ages of a full window takes so long that owners stop waiting, one by one, while they replay."""
    path = f"{names.zookeeper_root}/counted"
    with zookeeper(stack) as zk:
        reads = Counting(zk)
        probe = QuorumProbe(reads.client)

        def made(n: int) -> int:
            zk.create(f"{path}/blocks/entry_{n}", makepath=True)
            node = zk.exists(f"{path}/blocks/entry_{n}")
            assert node is not None
            return int(node.ctime)

        times = [made(n) for n in range(60)]
        assert probe.blocks_since(path, times[50], enough=60) == 60  # all of them are few enough
        assert reads.count < 5
        exact = sum(at >= times[50] for at in times)
        assert probe.blocks_since(path, times[50], enough=30) == exact
        assert reads.count >= 60
        reads.count = 0
        zk.delete(f"{path}/blocks/entry_0")
        made(60)
        assert probe.blocks_since(path, times[50], enough=30) == exact + 2  # one more, and one that is gone
        assert reads.count < 5
        assert probe.blocks_since(path, times[50], enough=exact + 1) == exact + 1  # too many to be content with
        assert reads.count >= 60
        zk.delete(f"{path}/blocks", recursive=True)
        times = [made(n) for n in range(40)]
        assert probe.blocks_since(path, times[0], enough=30) == 40  # another table of the same name


class Counting:
    """Counts the nodes that a client reads."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client
        self.count = 0
        ask = client.get_async

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            return ask(*arguments, **options)

        client.get_async = counted


def test_a_fetch_from_a_replica_that_fell_silent_is_abandoned_and_tried_again(
    stack: Stack, table: TableFactory
) -> None:
    """As after a cut during which the sender was started again: nothing ever reports that the connection is gone."""
    name = table()
    sender, fetching = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    troubles = f"SELECT count() FROM system.replication_queue WHERE table = '{name}' AND last_exception != ''"
    with fetches_stopped(fetching):
        sender.execute(f"INSERT INTO {name} (id, text) VALUES", [(1, "x")])
        sender.freeze()
    assert wait_until(lambda: fetching.execute(troubles) == [(1,)], timeout=60, interval=0.5)
    sender.thaw()
    assert wait_until(lambda: count(fetching, name) == 1, timeout=60, interval=0.5)
