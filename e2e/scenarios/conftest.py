"""One Kubernetes, two Kafka clusters and a ZooKeeper for all scenarios; a namespace of its own for each.

The Kubernetes is created here, unless `BLOCKHOUSE_E2E_KUBECONFIG` names one: then scenarios that need more than its API
are skipped, each with its reason.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator

import pytest

from e2e.cluster import GivenCluster
from e2e.cluster.given import VARIABLE
from e2e.cluster.surroundings import Surroundings
from e2e.node import NodeCluster
from e2e.scenarios.place import NAMESPACE, Place, keep_story
from e2e.scenarios.resources import companions
from e2e.scenarios.site import CHART, RELEASE, SYSTEM, Site, open_site
from e2e.scenarios.story import Story
from e2e.scenarios.version import Version, later_version

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Of several processes none is to begin a long one when the others are at their last.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    if not os.environ.get(VARIABLE):
        return
    for item in items:
        marker = item.get_closest_marker("own_cluster")
        if marker is not None:
            item.add_marker(pytest.mark.skip(reason=f"{VARIABLE} is set: {marker.args[0]}"))


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[GivenCluster | None]:
    """A cluster that the user brings, taken for this run, when the environment names one."""
    cluster = GivenCluster.of(os.environ, tmp_path_factory.mktemp("given"))
    if cluster is None:
        yield None
        return
    plugins = pytestconfig.pluginmanager
    with plugins.getplugin("capturemanager").global_and_fixture_disabled():
        found = f"\nusing the cluster of context {cluster.context}: {cluster.server}"
        plugins.getplugin("terminalreporter").write_line(found)
    with cluster:
        yield cluster


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, given: GivenCluster | None) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("site"), given) as site:
        yield site


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """A later version than ours."""
    return later_version(tmp_path_factory.mktemp("newer"))


@pytest.fixture
def namespace(site: Site, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace with what the examples refer to; deleted afterwards."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40].strip("-")
    name = site.namespace(f"{slug}-{next(_numbers)}")
    site.apply(*companions(name))
    yield name
    site.remove_namespace(name)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("node")
    with (
        NodeCluster(folder / "nodes", images=("operator", "aggregator", "clickhouse")) as nodes,
        Surroundings(folder / "surroundings", host=nodes.network.outside) as surroundings,
        Story(nodes.cluster.kubeconfig) as story,
    ):
        place = Place(nodes, surroundings, story, folder)
        try:
            image = "image.repository=docker.io/blockhouse/operator,image.tag=dev"
            nodes.cluster.helm(
                *("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM, "--create-namespace"),
                *("--set", f"replicas=2,resync=10s,{image}", "--wait", "--timeout", "300s"),
                timeout=330,
            )
            nodes.cluster.make_namespace(NAMESPACE)
            yield place
        finally:
            keep_story(place)
