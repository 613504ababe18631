"""Records of all kinds for a mirror, at a rate, from a thread of their own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Self

from confluent_kafka import Producer

Headers = list[tuple[str, str | bytes | None]]
ACKNOWLEDGED = 60
"""Seconds in which what was written has to be acknowledged at the end."""


class Feed:
    """Writes records of all kinds to a topic, at a rate if one is given, until it is stopped. A context manager."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int], *, seed: int, rate: float = 2000) -> None:
        self.topic = topic
        self._partitions = partitions
        self._random = random.Random(seed)
        self._rate = rate
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def write(self, count: int) -> None:
        """So many records, acknowledged when it returns."""
        for _ in range(count):
            self._one()
        assert self._producer.flush(ACKNOWLEDGED) == 0

    def _one(self) -> None:
        chance = self._random
        value = None if chance.random() < 0.02 else chance.randbytes(chance.choice([0, 10, 100, 2000]))
        key = None if chance.random() < 0.3 else chance.randbytes(4)
        headers: Headers | None = [("kind", b"x"), ("kind", b"y"), ("none", None)] if chance.random() < 0.1 else None
        moment = int(time.time() * 1000) - chance.randrange(1000)
        while True:
            try:
                self._producer.produce(
                    self.topic, value, key, chance.choice(self._partitions), timestamp=moment, headers=headers
                )
                return
            except BufferError:
                self._producer.poll(0.05)

    def _run(self) -> None:
        began, written = time.monotonic(), 0
        while not self._stopped.wait(0.02):
            for _ in range(int((time.monotonic() - began) * self._rate) - written):
                self._one()
                written += 1
            self._producer.poll(0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(ACKNOWLEDGED) == 0
