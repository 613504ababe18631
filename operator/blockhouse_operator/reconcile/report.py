"""Write a status when it changed, and emit an Event for what changed in it."""

from __future__ import annotations

from collections.abc import Iterable

from blockhouse_operator.adapters.kinds import Kind, Object
from blockhouse_operator.api.base import Part
from blockhouse_operator.api.conditions import Condition, merged
from blockhouse_operator.decide.transitions import transitions
from blockhouse_operator.reconcile.services import Services


def as_json(status: Part) -> dict[str, object]:
    """As it is written: empty parts are left out."""
    content: dict[str, object] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return content


def with_times(
    services: Services, before: Iterable[Condition], present: Iterable[Condition], generation: int
) -> tuple[Condition, ...]:
    return merged(before, present, generation=generation, now=services.now())


async def report(
    services: Services, kind: Kind, live: Object, before: Iterable[Condition], status: Part, after: Iterable[Condition]
) -> bool:
    """Write the status if it differs from the live one, then the Events. Returns whether it was written."""
    if not await services.kubernetes.apply_status(kind, live, as_json(status)):
        return False
    together: dict[tuple[bool, str], list[str]] = {}
    for change in transitions(tuple(before), tuple(after)):
        together.setdefault((change.warning, change.reason), []).append(change.message)
    for (warning, reason), messages in together.items():
        text = "; ".join(messages)
        await services.kubernetes.emit(live, warning=warning, reason=reason, message=text, at=services.now())
    return True
