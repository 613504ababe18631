"""A server that starts hangs when it has done nothing for a while; one that loads, or waits for ZooKeeper, does not."""

from __future__ import annotations

from e2e.stack.hanging import HUNG_SECONDS, StartWatch


def test_it_hangs_when_it_has_not_worked_for_long_enough() -> None:
    watch = StartWatch(1)
    assert not watch.hangs(1.0, 100.0, waits=False)
    assert not watch.hangs(1.1, 99.0 + HUNG_SECONDS, waits=False)
    assert watch.hangs(1.1, 100.0 + HUNG_SECONDS, waits=False)


def test_it_does_not_hang_while_it_works_or_waits_for_zookeeper() -> None:
    watch = StartWatch(1)
    for n in range(10):
        assert not watch.hangs(n * 0.3, n * 20.0, waits=False)
    for n in range(10, 20):
        assert not watch.hangs(2.7, n * 20.0, waits=True)
    assert not watch.hangs(2.7, 380.0 + HUNG_SECONDS - 1, waits=False)
