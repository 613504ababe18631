"""Load from nothing but bootstrap servers: the difference of two samples of the cluster."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.load.looks import ClusterLooks
from blockhouse.load.model import Sample
from blockhouse.load.sampling import SAMPLED, Sampler


class SampledSource:
    """A `LoadSource`. The time between two calls of `sample` is the window: 30 s or more on a large cluster."""

    name = SAMPLED

    def __init__(self, cluster: KafkaCluster, *, groups: bool = True) -> None:
        self._looks = ClusterLooks(cluster, groups=groups)
        self._sampler = Sampler()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of its looks."""
        self._looks.close()

    def sample(self) -> Sample | None:
        """Rates since the call before; None of the first one. Raises as the requests do."""
        with uncollected():
            return self._sampler.add(self._looks.look(self._sampler.ask_start))


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the interpreter from searching for cyclic garbage.

    A look makes hundreds of thousands of values, none in a cycle; each search walks through all of them again and
    again, a third of a look's CPU time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
