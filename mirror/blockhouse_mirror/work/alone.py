"""Sends records of one partition one at a time, so that a refusal is of one that is known and of no other.

The producer is the partition's own and ends with a refusal, as any does: the neighbours of its task do not notice. What
is refused becomes a dead letter, if there is a topic for them, and counts as passed when that is acknowledged (M2).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from blockhouse_mirror.protocol import dead_letter
from blockhouse_mirror.protocol.dead_letter import Outgoing
from blockhouse_mirror.protocol.progress import Progress, Run
from blockhouse_mirror.work.source import GONE
from blockhouse_mirror.work.target import CONSEQUENCES, REPORT_SECONDS, Delivered, NotSent, Target

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
FAULTS = TOO_LARGE | {KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD}
"""What is wrong with a record itself; any other refusal (a right that is gone) would be of all that follow, too."""


class Alone:
    """Of one partition. `letters` is the topic for what is refused, empty for none. Not thread-safe."""

    def __init__(self, progress: Progress, make: Callable[[], Target], letters: str) -> None:
        self.broken = ""
        """Why it is not known what became of the record; empty while it is, or may still be heard."""
        self.refusal: tuple[str, str] | None = None
        """Why the partition cannot continue: a reason and what happened. Nothing of it is in flight then."""
        self._progress, self._make, self._letters = progress, make, letters
        self._target = make()
        self._error: KafkaError | None = None
        self._next: list[Outgoing] = []
        self._why = ""

    def send(self, record: Outgoing, offset: int, size: int, delivered: Delivered) -> None:
        """Send the record at the source `offset`; nothing else of the partition is in flight. `delivered` is called
        when it is on the target. `size` in bytes."""
        progress = self._progress
        assert progress.settled, "one at a time"
        self._record, self._offset, self._after, self._delivered = record, offset, progress.after, delivered
        self._next, self._why, self._silent_at = [], "", 0.0
        progress.sent(Run.of_one(offset, size, record.timestamp_ms))
        self._hand_over(record, self._answered)

    def poll(self, seconds: float) -> bool:
        """Hear of what was sent, within so many seconds; True when it just became a dead letter."""
        letters = self._progress.letters
        if self._progress.settled:
            return False
        self._target.poll(0.0 if self._error is not None else seconds)
        if (error := self._error) is not None:
            self._error = None
            self._refused(error)
        elif self._target.broken and not self._progress.settled:
            # Its end is heard before what became of the record, and only that counts.
            now = time.monotonic()
            self._silent_at = self._silent_at or now
            if now - self._silent_at > REPORT_SECONDS:
                self.broken = self._target.broken
        return self._progress.letters > letters

    def _hand_over(self, record: Outgoing, heard: Delivered) -> None:
        content = record.value, record.key, record.timestamp_ms, list(record.headers)
        try:
            self._target.send(record.topic, record.partition, [content], heard)
        except NotSent as error:
            self._error = error.cause

    def _answered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._delivered(None, message)
        else:
            self._failed(error)

    def _kept(self, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self._progress.lettered(self._after)
        else:
            self._failed(error)

    def _failed(self, error: KafkaError) -> None:
        if error.code() in CONSEQUENCES:
            self.broken = error.str()
        else:
            self._error = error

    def _refused(self, error: KafkaError) -> None:
        """The record, or a letter of it, is not on the target: try the next, or refuse it."""
        first = not self._why
        self._why = f"{self._why}; its dead letter: {error.str()}" if self._why else error.str()
        if first and self._letters and error.code() in FAULTS:
            self._next = list(dead_letter.letters(self._record, self._letters, error.str()))
        elif error.code() not in TOO_LARGE:
            self._next = []
        if self._next:
            self._target, self._silent_at = self._make(), 0.0  # the former one sends nothing more
            self._hand_over(self._next.pop(0), self._kept)
            return
        self._progress.unsent(self._after)
        reason = "TargetPartitionUnknown" if error.code() in GONE and first else "RecordRefused"
        self.refusal = reason, f"offset {self._offset}: {self._why}"
