"""A decoder that survives every message: it decodes in another process, and finds those that end it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import numpy as np
import structlog

from blockhouse.errors import Retryable
from blockhouse.schema.model import Revision, TableHistory
from blockhouse_aggregator.isolation.process import DecodingProcess, Died, Key
from blockhouse_aggregator.wire.batch import BadMessage, DecodedBatch, interleave
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.formats import Format, MakeDecoder, decoder

log = structlog.get_logger(__name__)

REASON = "KillsWorker"
DEATHS = 2
"""Deaths with nothing but one message in its hands until the message is guilty: once may be chance."""
PARTS = 32
"""Into how many parts a deadly run of messages is cut: every death costs a new process, a small run next to nothing."""


class Isolated(Protocol):
    """`process.DecodingProcess` is the real one."""

    def decode(
        self, key: Key, evaluate: Evaluate | None, payloads: Sequence[bytes], timestamps_ms: Sequence[int]
    ) -> DecodedBatch: ...


class CarefulDecoder:
    """A `wire.batch.Decoder`: same rows and verdicts, and KillsWorker for a message that ends its process twice.

    Raises Permanent, as every decoder, when the table cannot be loaded.
    """

    def __init__(
        self,
        isolated: Isolated,
        form: Format,
        table: TableHistory,
        revision: Revision,
        evaluate: Evaluate | None = None,
    ) -> None:
        decoder(form, table, revision, evaluate)  # for what it raises: no message is involved yet
        self._isolated = isolated
        self._key: Key = (form, table, revision)
        self._evaluate = evaluate

    def decode(self, payloads: Sequence[bytes], timestamps_ms: Sequence[int] = ()) -> DecodedBatch:
        """Raises Retryable when the process cannot be started, or a DEFAULT not be asked for."""
        waiting = deque([range(len(payloads))])
        deaths: Counter[range] = Counter()
        parts: list[tuple[range, DecodedBatch]] = []
        while waiting:
            run = waiting.popleft()
            try:
                parts.append((run, self._run(run, payloads, timestamps_ms)))
            except Died as death:
                deaths[run] += 1
                log.warning("decode.died", table=self._key[1].name, messages=len(run), how=str(death))
                if len(run) > 1:
                    waiting.extendleft(reversed(list(_cut(run))))
                elif deaths[run] < DEATHS:
                    waiting.appendleft(run)
                else:
                    parts.append((run, self._condemned(str(death))))
        return interleave([(np.array(run, np.intp), batch) for run, batch in parts], len(payloads))

    def _run(self, run: range, payloads: Sequence[bytes], timestamps_ms: Sequence[int]) -> DecodedBatch:
        part = slice(run.start, run.stop)
        return self._isolated.decode(self._key, self._evaluate, payloads[part], timestamps_ms[part])

    def _condemned(self, how: str) -> DecodedBatch:
        """A batch of one bad message, with the columns of an empty one."""
        try:
            nothing = self._isolated.decode(self._key, self._evaluate, [], [])
        except Died as death:
            raise Retryable(f"the decoding process ends with no message at all: {death}", after=1.0) from death
        bad = BadMessage(0, REASON, f"the decoding process ended twice with it alone: {how}")
        return DecodedBatch(nothing.columns, np.zeros(1, np.int64), (bad,))


@contextmanager
def careful_decoders(alive: Callable[[], None]) -> Iterator[MakeDecoder]:
    """What makes the decoders of one order; they share a process, which ends with the order."""
    process = DecodingProcess(alive)
    try:
        yield partial(CarefulDecoder, process)
    finally:
        process.close()


def _cut(run: range) -> Iterator[range]:
    size = -(-len(run) // PARTS)
    return (run[first : first + size] for first in range(0, len(run), size))
