"""One Kubernetes, two Kafka clusters and a ZooKeeper for all scenarios; a namespace of its own for each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from e2e.cluster.surroundings import Surroundings
from e2e.scenarios.resources import companions
from e2e.scenarios.site import Site

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with Surroundings(folder / "surroundings") as surroundings, Cluster(folder / "cluster") as cluster:
        site = Site(folder, cluster, surroundings)
        try:
            site.install()
            site.simulator.start()
            yield site
        finally:
            site.close()


@pytest.fixture
def namespace(site: Site, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace with what the examples refer to; deleted afterwards, which must not hang."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40].strip("-")
    name = site.namespace(f"{slug}-{next(_numbers)}")
    site.apply(*companions(name))
    yield name
    site.cluster.kubectl("delete", "namespace", name, "--timeout=300s", timeout=330)
