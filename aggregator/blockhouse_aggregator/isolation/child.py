"""The decoding process: `python -m blockhouse_aggregator.isolation.child`, orders on stdin, batches on stdout.

Meant to die in the worker's place. Whatever a decoder does beyond its contract (a crash, an exception that is not ours,
no end) ends the process: the worker learns nothing but that, and which messages it had sent.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from blockhouse.errors import Retryable
from blockhouse_aggregator.isolation import frames
from blockhouse_aggregator.wire.batch import Decoder
from blockhouse_aggregator.wire.formats import decoder

CPU_SECONDS = 20.0
"""CPU time one batch may take; more is an endless loop. Not wall time: a busy machine must not condemn a message."""


def main() -> None:
    orders = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the worker, which ends us by closing the pipe
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # where memory ends, this process goes first
    frames.write(answers, frames.Ready())
    with contextlib.suppress(EOFError, BrokenPipeError):
        _serve(orders, answers)


def _serve(orders: BinaryIO, answers: BinaryIO) -> None:
    def evaluate(select: str, body: bytes) -> Sequence[Any]:
        frames.write(answers, frames.Ask(select, body))
        match frames.read(orders):
            case frames.Answer(values):
                return values
            case frames.NoAnswer(text):
                raise ValueError(text)
            case frames.AskLater(text, after):
                raise Retryable(text, after=after)
            case other:
                raise TypeError(f"no answer: {other}")

    decoders: dict[int, Decoder] = {}
    while True:
        match frames.read(orders):
            case frames.Prepare(key, form, table, revision):
                decoders[key] = decoder(form, table, revision, evaluate)
            case frames.Decode(key, payloads, timestamps_ms):
                signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
                try:
                    answer: frames.Frame = frames.Decoded(decoders[key].decode(payloads, timestamps_ms))
                except Retryable as error:
                    answer = frames.AskLater(str(error), error.after)
                signal.setitimer(signal.ITIMER_PROF, 0)
                frames.write(answers, answer)
            case other:
                raise TypeError(f"no order: {other}")


if __name__ == "__main__":
    main()
