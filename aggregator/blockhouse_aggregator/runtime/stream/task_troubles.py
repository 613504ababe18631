"""Orders that tasks cannot carry out: when the same trouble at the same place is an alarm.

A broker that does not answer once is no alarm: the order is given again. What fails three times at one place will keep
the stream where it is, perhaps until a person does something, and must not do so silently. Counts only, and for as
long as this process lives, over task leases and epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse_aggregator.gate.messages import Bye, Rebuilt, Sealed, Trouble
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.runtime.stream.worker_crashes import Order, Place, places_of

ORDER_FAILING = "OrderFailing"
"""The reason of an alarm about a trouble that has none of its own."""
FIRST_ALARM, NEXT_ALARMS = 3, 15
"""Troubles in a row at which the first alarm is raised, and after how many more each of the next."""


def reason_of(trouble: Trouble) -> str:
    """What alarm and status call it: an error without a reason of its own has only the name of its class."""
    return ORDER_FAILING if trouble.reason in ("", "Retryable") else trouble.reason


@dataclass(slots=True)
class TaskTroubles:
    """Of one stream. `heard` after every answer to an order."""

    _place: tuple[tuple[Place, ...], str] = ((), "")
    """Where the last trouble was, and its reason."""
    _in_a_row: int = 0

    def heard(self, order: Order, answer: Sealed | Rebuilt | Trouble | Bye | None) -> Alarm | None:
        """The alarm to raise, if it is time for one. No answer, and a farewell, change nothing."""
        if isinstance(answer, Sealed | Rebuilt):
            self._in_a_row = 0
        if not isinstance(answer, Trouble) or not answer.retryable:
            return None
        place = places_of(order), answer.reason
        self._in_a_row = self._in_a_row + 1 if place == self._place else 1
        self._place = place
        if self._in_a_row < FIRST_ALARM or (self._in_a_row - FIRST_ALARM) % NEXT_ALARMS:
            return None
        text = f"{self._in_a_row} times in a row a task could not carry out its order, so that nothing is read"
        return Alarm(reason_of(answer), f"{text}: {answer.message}")
