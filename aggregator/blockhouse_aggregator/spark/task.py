"""One lease of one stream, inside a Spark Python worker: ask the gate for orders, carry them out, report.

A task keeps no truth: if it dies, is retried or evicted, the next one begins with a replay of what was in flight.
Readers outlive a lease in a reused worker, so that the next lease finds its consumer positioned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from blockhouse.config.endpoints import ClickHouse, KafkaCluster
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.gate.client import GateAddress
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.collecting import DeadLetter
from blockhouse_aggregator.blocks.inserting import Inserter
from blockhouse_aggregator.blocks.scan import Reader, Scanner
from blockhouse_aggregator.clickhouse.expressions import DefaultValues
from blockhouse_aggregator.gate.client import GateClient
from blockhouse_aggregator.gate.messages import Bye, Rebuilt, Replay, Scan, Sealed, Stop, Trouble, Working
from blockhouse_aggregator.isolation.careful import careful_decoders
from blockhouse_aggregator.kafka.fetch import StreamReader
from blockhouse_aggregator.spark.letters import Letters


@dataclass(frozen=True, slots=True)
class LeaseSpec:
    """All a worker needs for one lease. Secrets are references: the worker reads them where it runs."""

    stream: StreamId
    epoch: int
    number: int
    gate: GateAddress
    cluster: KafkaCluster
    clickhouse: ClickHouse
    dead_letter_topic: str

    @property
    def group(self) -> str:
        """See `blockhouse.spark.session.Lease`."""
        return f"{self.stream}#{self.number}"

    @property
    def title(self) -> str:
        """See `blockhouse.spark.session.Lease`."""
        return f"lease {self.number} of {self.stream}"


@dataclass(slots=True)
class LeaseFigures:
    """What a lease did, for the log."""

    stream: str
    rounds: int = 0
    blocks: int = 0
    replayed: int = 0


_readers: dict[StreamId, StreamReader] = {}


def run_leases(specs: Iterable[LeaseSpec]) -> Iterator[LeaseFigures]:
    """For `mapPartitions`. Drains its input: a worker whose function does not is thrown away by Spark."""
    for spec in specs:
        yield _Lease(spec).run()


class _Lease:
    def __init__(self, spec: LeaseSpec) -> None:
        self._spec = spec
        self._figures = LeaseFigures(str(spec.stream))
        self._gate = GateClient(spec.gate, str(spec.stream), spec.epoch, spec.number)
        welcome = self._gate.welcome
        self._inserter = Inserter(spec.stream, spec.clickhouse, welcome.quorum, self._gate.send)
        self._topic_id = ""
        self._letters = Letters(spec.stream, spec.cluster, spec.dead_letter_topic)
        self._defaults = DefaultValues(spec.clickhouse)
        self._scanner: Scanner | None = None

    def _new_scanner(self) -> Scanner:
        """Raises Retryable or Permanent for a secret or a certificate that is gone."""
        spec, welcome = self._spec, self._gate.welcome
        return Scanner(
            spec.stream,
            cast(Reader, self._reader()),
            blocks=welcome.blocks,
            database=welcome.database,
            default_format=welcome.default_format,
            bury=self._bury,
            evaluate=self._defaults,
            isolate=lambda: careful_decoders(lambda: self._gate.send(Working())),
        )

    def _reader(self) -> StreamReader:
        reader = _readers.get(self._spec.stream)
        if reader is None:
            for other in _readers.values():
                other.close()  # this worker served another stream before: its prefetched data is of no more use
            _readers.clear()
            reader = _readers[self._spec.stream] = StreamReader(self._spec.cluster, self._spec.stream)
        return reader

    def _drop_outdated_reader(self) -> None:
        """The next order gets one that has the certificates of now."""
        reader = _readers.get(self._spec.stream)
        if reader is not None and reader.outdated:
            del _readers[self._spec.stream]
            self._scanner = None
            reader.close()

    def _bury(self, letters: Sequence[DeadLetter]) -> None:
        """Returns when the dead-letter topic has all of them."""
        self._letters.write(letters, self._topic_id)

    def run(self) -> LeaseFigures:
        self._gate.start(self._inserter)
        try:
            while (order := self._gate.next_order()) is not None and not isinstance(order, Stop):
                self._carry_out(order)
            self._inserter.close()
            if order is not None:
                self._gate.send(Bye())
        except OSError:
            self._inserter.close()  # the driver is gone; what was granted is a replay for the next owner
        finally:
            self._gate.close()
            self._defaults.close()
            self._letters.close()
        return self._figures

    def _carry_out(self, order: Scan | Replay) -> None:
        finished = self._gate.finish.is_set
        try:
            answer: Sealed | Rebuilt
            scanner = self._scanner = self._scanner or self._new_scanner()
            if isinstance(order, Scan):
                self._topic_id = order.topic_id
                answer, blocks = scanner.scan(order, finished)
                self._figures.rounds += 1
                self._figures.blocks += len(blocks)
                for block in blocks:
                    self._inserter.buffer(block)
            else:
                answer, built = scanner.replay(order, finished)
                self._figures.replayed += len(built)
                for block, builder in built:
                    self._inserter.buffer(block, builder)
        except BlockhouseError as error:
            if self._scanner is not None:
                self._scanner.lose_place()  # where the reader stands is uncertain now: the next order seeks
            self._drop_outdated_reader()
            reason = error.reason or type(error).__name__
            self._gate.send(Trouble(reason=reason, message=str(error), retryable=isinstance(error, Retryable)))
            return
        self._gate.send(answer)
