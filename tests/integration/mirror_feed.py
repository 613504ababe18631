"""Waiting for what a mirror does, and what holds in the end."""

from __future__ import annotations

import time
from collections.abc import Callable

from e2e.kit.mirror import MirrorProcess

SOON = 180.0
"""Seconds that only bound a success."""


def until(condition: Callable[[], bool], what: str, seconds: float = SOON) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


MirrorFactory = Callable[..., MirrorProcess]


def assert_exact(mirror: MirrorProcess, records: int) -> None:
    """After its end, which writes the last positions."""
    assert mirror.terminate() == 0
    found = mirror.audit()
    assert [each for each in found if not each.exact] == []
    assert sum(each.compared for each in found) == records
