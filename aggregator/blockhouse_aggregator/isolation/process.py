"""Starts, feeds and buries the decoding process. Must never blame a message for a process that did not even start."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO, cast

from blockhouse.errors import Retryable
from blockhouse.schema.model import Revision, TableHistory
from blockhouse_aggregator.isolation import frames
from blockhouse_aggregator.wire.batch import DecodedBatch
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.formats import Format

MODULE = "blockhouse_aggregator.isolation.child"
PATIENCE = 120.0
"""Seconds without a word after which the process is abandoned: less than the driver's patience with us."""

Key = tuple[Format, TableHistory, Revision]
"""What makes a decoder."""


class Died(Exception):
    """The process ended while it decoded."""


class DecodingProcess:
    """One process for all decoders of an order; started at the first use, and again after a death.

    A new process image (`exec`), never a mere fork: this one has threads of librdkafka. `alive` is called before
    every batch. NOT thread-safe.
    """

    def __init__(self, alive: Callable[[], None] = lambda: None) -> None:
        self._alive = alive
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared: list[Key] = []

    def decode(
        self, key: Key, evaluate: Evaluate | None, payloads: Sequence[bytes], timestamps_ms: Sequence[int]
    ) -> DecodedBatch:
        """As `wire.batch.Decoder.decode`, in the process. Raises Died, or Retryable when it cannot be known."""
        process = self._process or self._start()
        self._alive()
        try:
            if key not in self._prepared:
                frames.write(_in(process), frames.Prepare(len(self._prepared), *key))
                self._prepared.append(key)
            frames.write(_in(process), frames.Decode(self._prepared.index(key), payloads, timestamps_ms))
            while isinstance(frame := self._heard(process), frames.Ask):
                frames.write(_in(process), _asked(evaluate, frame))
        except (EOFError, BrokenPipeError) as error:
            raise Died(self._buried(process)) from error
        match frame:
            case frames.Decoded(batch):
                return batch
            case frames.AskLater(text, after):
                raise Retryable(text, after=after)
            case other:
                raise TypeError(f"no answer: {other}")

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._process = process
        try:
            self._heard(process)
        except EOFError as error:
            raise Retryable(f"the decoding process does not start: {self._buried(process)}", after=1.0) from error
        return process

    def _heard(self, process: subprocess.Popen[bytes]) -> frames.Frame:
        """Its next frame: nothing of it is buffered before, for it never sends two at once."""
        if not select.select([_out(process)], [], [], PATIENCE)[0]:
            self.close()
            raise Retryable(f"the decoding process has not answered for {PATIENCE:.0f} s", after=1.0)
        return frames.read(_out(process))

    def _buried(self, process: subprocess.Popen[bytes]) -> str:
        """How it ended."""
        self.close()
        code = process.returncode
        return f"signal {-code}" if code < 0 else f"exit status {code}"

    def close(self) -> None:
        """End the process, whatever it does. It has nothing to lose."""
        process, self._process = self._process, None
        self._prepared.clear()
        if process is None:
            return
        for pipe in (_in(process), _out(process)):
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # what could not be flushed is of no use to the dead
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _asked(evaluate: Evaluate | None, question: frames.Ask) -> frames.Frame:
    try:
        if evaluate is None:
            raise Retryable("there is no server here to evaluate a DEFAULT")
        return frames.Answer(evaluate(question.select, question.body))
    except ValueError as error:
        return frames.NoAnswer(str(error))
    except Retryable as error:
        return frames.AskLater(str(error), error.after)


def _in(process: subprocess.Popen[bytes]) -> BinaryIO:
    return cast(BinaryIO, process.stdin)


def _out(process: subprocess.Popen[bytes]) -> BinaryIO:
    return cast(BinaryIO, process.stdout)
