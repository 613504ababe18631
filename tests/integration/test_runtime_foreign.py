"""Taking over from eBay's aggregator in mid-flight, on real servers: its blocks are finished exactly, whether the
server has them or not, and everything behind them is loaded once.

The other aggregator is played by hand: rows inserted as it would (all columns but ours, in one block), and its
metadata committed with the offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blockhouse.contract.aggregator import StreamStatus
from blockhouse.metadata import codec
from blockhouse.metadata.ebay import EbayMetadata, EbayTable
from blockhouse.metadata.model import Metadata
from blockhouse_aggregator.commands.streams import app as streams_command
from e2e.clickhouse_choice import OLDEST
from e2e.stack import Stack, StackSpec
from tests.integration.clickhouse_blocks import only
from tests.integration.runtime_feed import ROWS
from tests.integration.runtime_group import Group
from tests.integration.runtime_pipeline import Loading, eventually, loading

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]

STORED, SENT_NOT_STORED, EMPTY, BEHIND, FORGOTTEN = range(5)
"""One partition is one case: the block is stored; it is not; nothing is in flight; tables stand at different places;
the server can have forgotten the block, so that no owner may decide."""
MESSAGES = 12
UNDECIDED = "ForeignBlockUndecided"
A, B, OLD = "default.taken_a", "default.taken_b", "default.taken_old"


class Other:
    """eBay's aggregator, as far as its traces go."""

    def __init__(self, found: Loading) -> None:
        self.found = found
        (self.cluster,) = found.pipeline.kafka.values()
        self.group = Group(found.pipeline)

    def offsets(self, table: str, partition: int) -> list[int]:
        return self.found.feed.offsets(table, (self.cluster.name, partition))

    def insert(self, table: str, partition: int, offsets: Sequence[int]) -> None:
        """One block of the rows of these messages, with quorum, without a word of where they came from."""
        rows = [
            row for offset in offsets for row in self.found.feed.rows_of(table, (self.cluster.name, partition, offset))
        ]
        server = self.found.stack.clickhouse[1, 2]
        server.execute(f"INSERT INTO {table} (id, text) VALUES", rows, insert_quorum=2)

    def commit(self, partition: int, version: int, **tables: tuple[int, int]) -> None:
        entries = {f"default.{n}": EbayTable(*found, count=1) for n, found in tables.items()}
        metadata = EbayMetadata(1, "ebay-replica", 0, entries)
        text = (
            codec.encode(metadata) if version == 1 else ",".join(f"default.{n},{b},{e}" for n, (b, e) in tables.items())
        )
        assert metadata.committed_offset is not None
        self.group.commit(partition, metadata.committed_offset, text)


def prepare(version: int, found: Loading) -> None:
    feed, other = found.feed, Other(found)
    for name in ("taken_a", "taken_b", "taken_old"):
        feed.table(name, settings={"replicated_deduplication_window": 20 if name == "taken_old" else 10_000})
    for partition in range(5):
        for _ in range(MESSAGES):
            feed.send_one_of_each([A, B] if partition != FORGOTTEN else [OLD], to=("a", partition))
    for partition in (STORED, SENT_NOT_STORED):
        first = other.offsets(A, partition)[:5], other.offsets(B, partition)[:3]
        if partition == STORED:
            other.insert(A, partition, first[0])
            other.insert(B, partition, first[1])
        other.commit(partition, version, taken_a=(first[0][0], first[0][-1]), taken_b=(first[1][0], first[1][-1]))
    # Everything up to some offset is stored: begin = end + 1, for both tables.
    upto = other.offsets(B, EMPTY)[6]
    other.insert(A, EMPTY, [o for o in other.offsets(A, EMPTY) if o <= upto])
    other.insert(B, EMPTY, [o for o in other.offsets(B, EMPTY) if o <= upto])
    other.commit(EMPTY, version, taken_a=(upto + 1, upto), taken_b=(upto + 1, upto))
    # A is far ahead and in flight (stored), B has only stored its first two.
    ahead, behind = other.offsets(A, BEHIND), other.offsets(B, BEHIND)
    other.insert(A, BEHIND, ahead[:4])
    other.insert(A, BEHIND, ahead[4:9])
    other.insert(B, BEHIND, behind[:2])
    other.commit(BEHIND, version, taken_a=(ahead[4], ahead[8]), taken_b=(behind[2], behind[2] - 1))
    # The block is stored, and then so many others that the server may have forgotten it.
    old = other.offsets(OLD, FORGOTTEN)
    other.insert(OLD, FORGOTTEN, old[:1])
    for number in range(12):
        row = {"id": 10**9 + number, "text": "other"}
        found.stack.clickhouse[1, 1].execute(f"INSERT INTO {OLD} (id, text) VALUES", [row])
    other.commit(FORGOTTEN, version, taken_old=(old[0], old[0]))


@pytest.fixture(params=[0, 1], ids=["v0", "v1"], scope="module")
def taken(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Iterator[Loading]:
    folder: Path = tmp_path_factory.mktemp(f"foreign{request.param}")
    with loading(
        running_stack,
        folder,
        f"foreign{request.param}",
        partitions=5,
        aggregators=1,
        clusters=1,
        before=lambda found: prepare(request.param, found),
    ) as found:
        yield found
    for name in (A, B, OLD):
        for server in running_stack.clickhouse.values():
            # Else a current server takes the table away later, and the next case creates it at the same path.
            server.execute(f"DROP TABLE IF EXISTS {name}" + " SYNC" * (StackSpec().clickhouse != OLDEST))


@pytest.fixture
def by_content(taken: Loading) -> None:
    """The other aggregator sent no token."""
    only(taken.stack, tokens=False)


@pytest.mark.usefixtures("by_content")
def test_every_message_of_a_stream_taken_over_in_mid_flight_is_stored_once(taken: Loading) -> None:
    (aggregator,) = taken.aggregators
    name = taken.stream("a", FORGOTTEN)
    taken.wait("the undecidable block to be blocked", lambda: bool(aggregator.in_flight(OLD, "blocked")))
    taken.wait("all else to be loaded", lambda: all(done(s) for s in aggregator.streams() if s.stream != name))
    taken.feed.send(A, 3)
    taken.feed.send(B, 3)
    eventually(lambda: differences(taken) == [], 90)
    assert differences(taken) == []
    stream = aggregator.stream(taken.stream("a", STORED))
    assert stream.counters.deduplicated == 2
    assert aggregator.stream(taken.stream("a", SENT_NOT_STORED)).counters.deduplicated == 0


def test_a_block_the_server_may_have_forgotten_is_not_inserted_but_blocked(taken: Loading) -> None:
    (aggregator,) = taken.aggregators
    taken.wait("it to be blocked", lambda: bool(aggregator.in_flight(OLD, "blocked")))
    (block,) = aggregator.in_flight(OLD, "blocked")
    assert block.reason == UNDECIDED
    rows = taken.stack.clickhouse[1, 1].execute(f"SELECT count(), uniqExact(id) FROM {OLD}")
    assert rows == [(ROWS + 12,) * 2]


def test_on_servers_with_tokens_every_block_in_flight_is_undecided(taken: Loading) -> None:
    """Sent again it would be stored twice, for a token is another identity: in one stream it is stored, in one not."""
    only(taken.stack, tokens=True)
    (aggregator,) = taken.aggregators
    expected = {(taken.stream("a", at), table) for at in (STORED, SENT_NOT_STORED) for table in (A, B)}
    expected |= {(taken.stream("a", BEHIND), A), (taken.stream("a", FORGOTTEN), OLD)}

    def blocked() -> set[tuple[str, str]]:
        streams = aggregator.streams()
        return {(s.stream, b.table) for s in streams for b in s.in_flight or () if b.reason == UNDECIDED}

    taken.wait("all of them to be blocked", lambda: blocked() == expected)
    taken.wait("the stream without any to be loaded", lambda: done(aggregator.stream(taken.stream("a", EMPTY))))
    for table in (A, B):
        rows = taken.stack.clickhouse[1, 1].execute(f"SELECT count(), uniqExact(id) FROM {table}")
        assert rows[0][0] == rows[0][1]


def test_an_operator_declares_the_undecidable_block_stored(taken: Loading) -> None:
    (aggregator,) = taken.aggregators
    taken.wait("it to be blocked", lambda: bool(aggregator.in_flight(OLD, "blocked")))
    name, config = taken.stream("a", FORGOTTEN), str(aggregator.folder / "aggregator.yaml")
    refused = CliRunner().invoke(streams_command, ["recut", name, OLD, "--config", config, "--yes"])
    assert refused.exit_code == 2, "no one can prove that it is absent"
    arguments = ["resolve", name, OLD, "stored", "--config", config, "--yes"]
    assert CliRunner().invoke(streams_command, arguments).exit_code == 0
    taken.wait("the rest of the table to be loaded", lambda: done(aggregator.stream(name)))
    rows = taken.stack.clickhouse[1, 1].execute(f"SELECT count(), uniqExact(id) FROM {OLD}")
    assert rows == [(MESSAGES * ROWS + 12,) * 2]
    assert aggregator.logged("alarm", reason="BlockDecided")


def test_what_was_taken_over_is_committed_in_our_format(taken: Loading) -> None:
    (aggregator,) = taken.aggregators
    committed = Group(taken.pipeline).committed()
    assert sorted(committed) == list(range(5))
    for offset, text in committed.values():
        assert isinstance(codec.decode(text, offset), Metadata)
    assert len(aggregator.logged("stream.adopted")) == 5


@pytest.mark.usefixtures("by_content")
def test_a_stream_can_be_handed_back_and_taken_over_again(taken: Loading) -> None:
    (aggregator,) = taken.aggregators
    taken.wait("everything loaded", lambda: all(map(done, aggregator.streams())))
    aggregator.stop(grace=30)
    config = str(aggregator.folder / "aggregator.yaml")
    shown = CliRunner().invoke(streams_command, ["hand-back", "--config", config])
    assert shown.exit_code == 0, shown.output
    assert "add --yes" in shown.output
    group = Group(taken.pipeline)
    before = group.committed()

    def written() -> bool:  # the broker refuses while it takes the stopped member for alive
        return CliRunner().invoke(streams_command, ["hand-back", "--config", config, "--yes"]).exit_code == 0

    assert eventually(written)
    for partition, (offset, text) in group.committed().items():
        assert text.startswith("1,,r1,taken_a,"), text
        assert offset == before[partition][0]
    taken.feed.send(A, 3)
    aggregator.start()
    eventually(lambda: differences(taken) == [], 120)
    assert differences(taken) == []


def differences(taken: Loading) -> list[str]:
    """Rows that are missing, doubled or unknown, of the tables that can be loaded, on any replica."""
    found = []
    for table in (A, B):
        expected = {row["id"] for place in taken.feed.places(table) for row in taken.feed.rows_of(table, place)}
        for server in taken.stack.clickhouse.values():
            stored = dict(server.execute(f"SELECT id, count() FROM {table} GROUP BY id"))
            wrong = {id for id in expected | stored.keys() if stored.get(id, 0) != int(id in expected)}
            found += [f"{table} on {server.name}: {sorted(wrong)[:10]}"] if wrong else []
    return found


def done(stream: StreamStatus | None) -> bool:
    return stream is not None and stream.drained
