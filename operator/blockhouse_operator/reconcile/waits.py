"""What shards wait for, in the log once: a line when it changes, none while it stays."""

from __future__ import annotations

import re
from collections.abc import Sequence

import structlog

from blockhouse_operator.decide.deferred import RestartDeferred

log = structlog.get_logger(__name__)

Place = tuple[str, str]
"""Namespace and name."""

_FIGURE = re.compile(r"(?<![\w-])\d[\d.,]*(?![\w-])")
"""A number that counts something, such as bytes that remain; not one in a name."""


class Waits:
    """Of every shard, as it was logged last."""

    def __init__(self) -> None:
        self._known: dict[Place, tuple[str, ...]] = {}

    def note(self, place: Place, deferred: Sequence[RestartDeferred]) -> None:
        """Log what the shard waits for, or that it does not any more, if that is new."""
        present = tuple(_FIGURE.sub("", step.why) for step in deferred)
        if present == self._known.get(place, ()):
            return
        self._known[place] = present
        namespace, name = place
        if deferred:
            log.info("waiting", namespace=namespace, shard=name, why=[f"{x.reason}: {x.why}" for x in deferred])
        else:
            log.info("waiting_no_more", namespace=namespace, shard=name)

    def forget(self, place: Place) -> None:
        """The shard is gone."""
        self._known.pop(place, None)
