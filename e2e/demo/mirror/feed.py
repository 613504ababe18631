"""Records for the source at a rate that changes while they flow."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Producer

from blockhouse.errors import BlockhouseError
from e2e.demo.mirror.scenario import RECORD, TOPIC, Rates

SLICE = 0.05
NOTHING = 50
"""One record of so many has no value, as compacted topics have them."""


class Feed:
    """Writes to every partition at the rates it has just now, while its context lasts. The seed decides the bytes."""

    def __init__(self, bootstrap: str, rates: Rates, seed: int) -> None:
        self.rates = rates
        self.acknowledged = 0
        self._chance = random.Random(seed)
        self._bytes = self._chance.randbytes(1 << 20)
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True}
        self._producer = Producer({**settings, "log_level": 0})
        self._failure: KafkaError | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def stop(self) -> int:
        """End it; how many records the source acknowledged. BlockhouseError when it refused one."""
        self._stopped.set()
        self._thread.join()
        left = self._producer.flush(60)
        if self._failure is not None or left:
            raise BlockhouseError(f"the source did not take every record: {self._failure or f'{left} are left'}")
        return self.acknowledged

    def _run(self) -> None:
        due, then = [0.0] * len(self.rates), time.monotonic()
        while not self._stopped.wait(SLICE):
            now = time.monotonic()
            for partition, rate in enumerate(self.rates):
                due[partition] += rate * (now - then)
                while due[partition] >= RECORD:
                    due[partition] -= RECORD
                    self._write(partition)
            then = now
            self._producer.poll(0)

    def _write(self, partition: int) -> None:
        chance = self._chance
        at = chance.randrange(len(self._bytes) - RECORD)
        value = None if chance.randrange(NOTHING) == 0 else self._bytes[at : at + RECORD]
        key = self._bytes[at : at + 8]
        headers: list[tuple[str, str | bytes | None]] = [("kind", self._bytes[at : at + 2])]
        self._producer.produce(TOPIC, value, key, partition, headers=headers, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._failure = self._failure or error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
