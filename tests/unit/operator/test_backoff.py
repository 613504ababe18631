"""What stays as it is comes back later each time; what changes comes back soon."""

from __future__ import annotations

from blockhouse_operator.reconcile.backoff import Backoff

ONE, TWO = ("ns", "p-1"), ("ns", "p-2")


def test_it_comes_back_later_each_time_until_something_changes() -> None:
    backoff = Backoff()

    def after(*, changed: bool = False) -> float:
        return backoff.after(ONE, 5.0, 60.0, changed=changed)

    assert [after(changed=True), *(after() for _ in range(5))] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert backoff.after(TWO, 5.0, 60.0, changed=False) == 5.0
    assert [after(changed=True), after()] == [5.0, 10.0]
    backoff.forget(ONE)
    assert after() == 5.0
