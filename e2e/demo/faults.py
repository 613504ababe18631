"""Kills an aggregator between commit and acknowledgement, and freezes one for longer than its session lasts.

Neither is left to chance. While every other replica is stopped from fetching, a quorum insert is stored by its own
replica and cannot be acknowledged: an aggregator that is killed then has committed an intent, has stored the rows, and
cannot know it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from blockhouse.streams import StreamId
from blockhouse_aggregator.clickhouse.quorum import QuorumProbe
from e2e.demo.evidence import Committed, read_committed, stored_rows
from e2e.kit.watch import BlockInFlight, Watcher
from e2e.pipeline import Pipeline
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.process import wait_until
from e2e.stack.server import StackError
from e2e.stack.tables import zookeeper_path

HANG_TIMEOUT = 20.0
"""Seconds to wait for a block to hang. An insert whose quorum times out meanwhile is sent again, and hangs on."""
TAKEOVER_TIMEOUT = 60.0
TRIES = 2


@dataclass(frozen=True, slots=True)
class Killed:
    """A SIGKILL, and what was found right after it. `at` is in seconds after the first message."""

    replica: str
    at: float
    block: BlockInFlight
    rows_stored: int
    quorum_pending: bool
    committed: Committed

    @property
    def recorded(self) -> bool:
        """By the metadata in Kafka the block is in flight."""
        return self.committed.has_in_flight(self.block.begin, self.block.end)

    @property
    def between_commit_and_acknowledgement(self) -> bool:
        """The intent is in Kafka, the rows in ClickHouse, and no server can have acknowledged them without a quorum."""
        return self.recorded and self.rows_stored > 0 and self.quorum_pending


@dataclass(frozen=True, slots=True)
class Frozen:
    """A SIGSTOP, for how many seconds, and how many of its streams others had taken over before it was thawed."""

    replica: str
    at: float
    seconds: float
    streams: int
    taken_over: int

    @property
    def beyond_session(self) -> bool:
        return 0 < self.streams == self.taken_over


class Faults:
    """Does harm to a running pipeline. `clock` gives seconds after the first message."""

    def __init__(self, pipeline: Pipeline, watcher: Watcher, quorum: QuorumProbe, clock: Callable[[], float]) -> None:
        self._pipeline = pipeline
        self._watcher = watcher
        self._quorum = quorum
        self._clock = clock

    def kill(self, candidates: Sequence[str]) -> Killed:
        """Kill the first candidate that works, with a block stored but not acknowledged. StackError when none hangs."""
        victim = self._working(candidates)
        for _ in range(TRIES):
            with fetches_stopped([s for s in self._pipeline.stack.clickhouse.values() if s.replica != victim]):
                hanging = self._wait_for_hanging(victim)
                if hanging is not None:
                    return self._kill(victim, hanging)
            wait_until(lambda: not self._watcher.look(victim).in_flight, timeout=HANG_TIMEOUT)
        raise StackError(f"no insert of aggregator {victim} hung on its quorum within {TRIES} tries: nothing to kill")

    def _kill(self, victim: str, block: BlockInFlight) -> Killed:
        at = self._clock()
        self._pipeline.aggregators[victim].kill()
        stream = StreamId.parse(block.stream)
        config = self._pipeline.aggregators[victim].config
        committed = read_committed(
            self._pipeline.stack.kafka[stream.cluster].bootstrap, config["kafka"]["group"], stream
        )
        return Killed(
            victim, at, block, stored_rows(self._clickhouse(victim), block), self._pending(victim, block), committed
        )

    def freeze(self, candidates: Sequence[str], seconds: float) -> Frozen:
        """Freeze the first candidate that works until others own all its streams, at least `seconds`; then thaw it."""
        victim = self._working(candidates)
        streams = set(self._watcher.look(victim).streams)
        aggregator = self._pipeline.aggregators[victim]
        at, began = self._clock(), time.monotonic()
        aggregator.freeze()
        try:
            wait_until(
                lambda: time.monotonic() - began >= seconds and streams <= self.owned_by_others(victim),
                timeout=seconds + TAKEOVER_TIMEOUT,
                interval=0.5,
            )
            taken_over = len(streams & self.owned_by_others(victim))
        finally:
            aggregator.thaw()
        return Frozen(victim, at, time.monotonic() - began, len(streams), taken_over)

    def owned_by_others(self, victim: str) -> set[str]:
        """Streams that other aggregators have taken over: a stream without a state is not theirs yet."""
        others = [seen for seen in self._watcher.latest if seen.replica != victim]
        return {stream for seen in others for stream, state in seen.streams.items() if state in ("REPLAY", "CONSUME")}

    def _working(self, candidates: Sequence[str]) -> str:
        """The first candidate that is ready and owns a stream."""
        found: list[str] = []

        def look() -> bool:
            seen = {s.replica: s for s in self._watcher.latest}
            found[:] = [name for name in candidates if seen[name].condition == "ready" and seen[name].streams]
            return bool(found)

        if not wait_until(look, timeout=TAKEOVER_TIMEOUT):
            raise StackError(f"no aggregator owns a stream: {self._watcher.latest}")
        return found[0]

    def _wait_for_hanging(self, victim: str) -> BlockInFlight | None:
        """A block the victim's replica has stored, whose quorum is pending, and which is still being inserted."""
        end = time.monotonic() + HANG_TIMEOUT
        while time.monotonic() < end:
            for block in self._watcher.look(victim).in_flight:
                if (
                    block.stage == "inserting"
                    and stored_rows(self._clickhouse(victim), block)
                    and self._pending(victim, block)
                    and block in self._watcher.look(victim).in_flight
                ):
                    return block
            time.sleep(0.1)
        return None

    def _pending(self, victim: str, block: BlockInFlight) -> bool:
        table = block.table.partition(".")[2]
        return self._quorum.snapshot(zookeeper_path(self._clickhouse(victim).shard, table)).pending

    def _clickhouse(self, replica: str) -> ClickHouseServer:
        return next(s for s in self._pipeline.stack.clickhouse.values() if s.replica == replica)


@contextmanager
def fetches_stopped(servers: Sequence[ClickHouseServer]) -> Iterator[None]:
    """These replicas fetch no part meanwhile, so that no quorum that needs one of them is met."""
    try:
        for server in servers:
            server.execute("SYSTEM STOP FETCHES")
        yield
    finally:
        for server in servers:
            server.execute("SYSTEM START FETCHES")
