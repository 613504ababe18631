"""What a throttler works with: its record, its clocks, where load is read, and what it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from blockhouse.load.model import LoadSource
from blockhouse.throttle.model import Event, Overrides, Ownership, Settings


class ThrottleStore(Protocol):
    """What is kept durably about one Kafka cluster. Raises Retryable or Permanent."""

    def exclusive(self) -> AbstractContextManager[None]:
        """While a look is decided about and carried out: two throttlers of one record must not mix theirs."""

    def ownership(self) -> Ownership:
        """What is ours in the cluster."""

    def overrides(self) -> Overrides:
        """What people ask for."""

    def remember(self, ownership: Ownership) -> None:
        """Keep it; durable when this returns."""

    def forget_override(self, broker: int | None) -> None:
        """It has ended."""


@dataclass
class Tally:
    """Counts since the process began: changes by what (`rate`, `list`) and result (`ok`, `failed`), and intervals in
    which the figures of a broker could not be used, by broker and fault."""

    writes: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: Counter[tuple[int, str]] = field(default_factory=Counter)

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Around one change."""
        result = "failed"
        try:
            yield
            result = "ok"
        finally:
            self.writes[what, result] += 1


@dataclass(frozen=True, slots=True)
class Context:
    """What a throttler works with. `clock` is monotonic, `wall` the time of day; both in seconds.

    `check` is asked before every change and raises when this process may no longer change anything. `report` gets the
    events. `loads` of None knows no load: every broker gets the least rate that lets its moves end.
    """

    store: ThrottleStore
    settings: Settings
    clock: Callable[[], float]
    wall: Callable[[], float]
    loads: LoadSource | None = None
    check: Callable[[], None] = lambda: None
    report: Callable[[Event], None] = lambda _: None
    tally: Tally = field(default_factory=Tally)
