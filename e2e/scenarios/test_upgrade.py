"""A newer operator, which would make pods otherwise, restarts none that runs: what it would change waits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest

from e2e.scenarios.operator import OperatorProcess
from e2e.scenarios.resources import at_home, companions, example, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import pods

NAME = "upgraded"
SOURCE = Path(__file__).parents[2] / "operator" / "blockhouse_operator"
LATER = {"SPARK_LOCAL_DIRS": "SPARK_LOCAL_DIRECTORIES"}
"""What the newer operator calls differently in every pod."""


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> type[OperatorProcess]:
    """An operator of a later version: a copy of ours, with another pod template."""
    folder = tmp_path_factory.mktemp("newer")
    shutil.copytree(SOURCE, folder / SOURCE.name, ignore=shutil.ignore_patterns("__pycache__"))
    template = folder / SOURCE.name / "desired" / "pod.py"
    text = template.read_text()
    for former, later in LATER.items():
        assert former in text
        text = text.replace(former, later)
    template.write_text(text)

    class Newer(OperatorProcess):
        environment: ClassVar[dict[str, str]] = {"PYTHONPATH": str(folder)}

    return Newer


def replica_pods(site: Site, namespace: str) -> dict[str, dict[str, Any]]:
    return {
        pod["metadata"]["name"]: pod
        for pod in pods(site.cluster, NAME, namespace)
        if "verifier" not in pod["metadata"]["name"]
    }


def variables(pod: dict[str, Any]) -> set[str]:
    return {variable["name"] for container in pod["spec"]["containers"] for variable in container.get("env", ())}


def templates(site: Site, namespace: str) -> list[set[str]]:
    label = f"ingest.blockhouse.dev/pipeline={NAME}"
    found = site.cluster.get("statefulsets", "-n", namespace, "-l", label)["items"]
    return [variables(stateful_set["spec"]["template"]) for stateful_set in found]


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_an_upgrade_restarts_no_pod(site: Site, newer: type[OperatorProcess]) -> None:
    namespace = site.namespace("upgrade")
    site.apply(*companions(namespace))
    pipeline = patched(at_home(example(), site.surroundings, name=NAME, namespace=namespace), shards=1)
    with site.operator():
        site.apply(pipeline)
        site.wait_ready(NAME, namespace)
    before = {name: pod["metadata"]["uid"] for name, pod in replica_pods(site, namespace).items()}
    former, later = next(iter(LATER.items()))

    site.install("--set", "resources.limits.memory=600Mi", "--set", "logLevel=debug")
    site.program = newer
    try:
        with site.operator():
            site.wait(
                "the templates are those of the newer operator",
                lambda: all(later in t for t in templates(site, namespace)),
                timeout=120,
            )
            found = site.wait_ready(NAME, namespace)
            assert found["status"]["replicas"]["updated"] == found["status"]["replicas"]["desired"] == len(before)
            assert {n: p["metadata"]["uid"] for n, p in replica_pods(site, namespace).items()} == before
            site.apply(patched(pipeline, aggregator__image="blockhouse/aggregator:0.1.2"))
            site.wait(
                "a change of the spec restarts them", lambda: renewed(site, namespace, later, before), timeout=300
            )
    finally:
        site.program = OperatorProcess
        site.install()
    assert former not in {name for pod in replica_pods(site, namespace).values() for name in variables(pod)}


def renewed(site: Site, namespace: str, later: str, before: dict[str, str]) -> bool:
    found = replica_pods(site, namespace)
    return set(found) == set(before) and all(
        later in variables(pod) and pod["metadata"]["uid"] != before[name] for name, pod in found.items()
    )
