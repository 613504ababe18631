"""The chart: valid, refuses what cannot work, and renders what was reviewed.

`UPDATE_GOLDEN=1 pytest e2e/scenarios/test_chart.py` writes `tests/golden/chart/` again.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from blockhouse.cli import build_app
from e2e.cluster.binaries import Binaries

pytestmark = [pytest.mark.core, pytest.mark.own_cluster("it asks no cluster at all")]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "blockhouse"
GOLDEN = ROOT / "tests" / "golden" / "chart"
KUBERNETES = "v1.34.0"
VARIANTS = {
    "default": (),
    "one-namespace": (
        *("--set", "watchNamespace=data", "--set", "zones={dc-a,dc-b}", "--set", "crds.install=false"),
        *("--set", "monitoring.podMonitor.enabled=true", "--set", "monitoring.rules.enabled=true"),
        *("--set", "monitoring.podMonitor.pipelines[0].name=events"),
        *("--set", "monitoring.podMonitor.pipelines[0].namespace=data"),
        *(
            "--set",
            "monitoring.podMonitor.mirrors[0].name=east",
            "--set",
            "monitoring.podMonitor.mirrors[0].namespace=data",
        ),
        *("--set", "replicas=1", "--set", "rbac.aggregate=false", "--set", "image.digest=sha256:" + "a" * 64),
        *("--set", "imagePullSecrets[0].name=pull", "--set", "extraArgs={--dry-run}"),
    ),
    "two-namespaces": ("--set", "watchNamespaces={orders,billing}", "--set", "crds.install=false"),
}


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([Binaries.find()["helm"], *arguments], capture_output=True, text=True, check=False)


def rendered(*arguments: str) -> str:
    done = helm(
        *("template", "blockhouse", str(CHART), "--namespace", "blockhouse-system"),
        *("--kube-version", KUBERNETES, *arguments),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(*arguments: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(document["kind"], document["metadata"]["name"]): document for document in documents(*arguments)}


def documents(*arguments: str) -> list[dict[str, Any]]:
    """All objects: those of two namespaces may have one name."""
    return [document for document in yaml.safe_load_all(rendered(*arguments)) if document]


def test_it_is_valid() -> None:
    done = helm("lint", "--strict", str(CHART))

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_renders_what_was_reviewed(variant: str) -> None:
    """Without the definitions: they have a test of their own."""
    kept = [each for each in documents(*VARIANTS[variant]) if each["kind"] != "CustomResourceDefinition"]
    text = yaml.safe_dump_all(kept, sort_keys=True, width=120)
    golden = GOLDEN / f"{variant}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)

    assert text == golden.read_text()


def test_every_dashboard_is_shipped_for_grafanas_sidecar() -> None:
    found = objects("--set", "monitoring.dashboards.enabled=true")
    maps = [document for (_, name), document in found.items() if name.endswith("-dashboard")]

    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in maps)
    shipped = {name: text for each in maps for name, text in each["data"].items()}
    assert shipped == {file.name: file.read_text() for file in (CHART / "files" / "dashboards").iterdir()}


@pytest.mark.parametrize(
    "wrong",
    ["replica=3", "replicas=many", "zones={Not A Zone}", "image.digest=latest", "logLevel=loud", "resync=soon"],
)
def test_a_wrong_value_is_refused_before_anything_is_installed(wrong: str) -> None:
    done = helm("template", "blockhouse", str(CHART), "--kube-version", KUBERNETES, "--set", wrong)

    assert done.returncode != 0
    assert wrong.split("=")[0].split(".")[-1] in done.stderr


def test_images_that_know_no_token_that_only_reads_are_scraped_with_that_of_the_admin_apis() -> None:
    values = [f"monitoring.podMonitor.{kind}[0].adminToken=true" for kind in ("pipelines", "mirrors")]
    found = objects(*VARIANTS["one-namespace"], *(word for value in values for word in ("--set", value)))

    endpoints = [found["PodMonitor", name]["spec"]["podMetricsEndpoints"][0] for name in ("events", "east-mirror")]
    names = [endpoint["authorization"]["credentials"]["name"] for endpoint in endpoints]
    assert names == ["events-internal", "east-mirror"]


def test_the_definitions_outlive_the_release_and_can_be_left_out() -> None:
    kept = [document for (kind, _), document in objects().items() if kind == "CustomResourceDefinition"]

    assert len(kept) == 4
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in kept)
    assert not [kind for kind, _ in objects("--set", "crds.install=false") if kind == "CustomResourceDefinition"]


def test_an_operator_of_one_namespace_has_no_right_outside_it() -> None:
    found = objects(*VARIANTS["one-namespace"])

    assert not [kind for kind, _ in found if kind.startswith("ClusterRole")]
    assert found["Role", "blockhouse-operator"]["metadata"]["namespace"] == "data"
    assert found["RoleBinding", "blockhouse-operator"]["subjects"][0]["namespace"] == "blockhouse-system"


def test_the_example_of_values_is_rendered() -> None:
    found = documents("--values", str(ROOT / "examples" / "chart" / "values.yaml"))
    roles = [each for each in found if each["kind"] == "Role" and each["metadata"]["name"] == "blockhouse-operator"]

    assert [each["metadata"]["namespace"] for each in roles] == ["orders", "billing"]
    assert {"PodMonitor", "PrometheusRule"} <= {each["kind"] for each in found}


def test_an_operator_of_several_namespaces_has_the_same_rights_in_each_and_none_elsewhere() -> None:
    found = documents(*VARIANTS["two-namespaces"], "--set", "rbac.aggregate=false")
    roles = [each for each in found if each["kind"] == "Role" and each["metadata"]["name"] == "blockhouse-operator"]
    bindings = [
        each for each in found if each["kind"] == "RoleBinding" and each["roleRef"]["name"] == "blockhouse-operator"
    ]

    assert not [each for each in found if each["kind"].startswith("ClusterRole")]
    assert [each["metadata"]["namespace"] for each in roles] == ["orders", "billing"]
    assert [each["metadata"]["namespace"] for each in bindings] == ["orders", "billing"]
    assert [each["subjects"][0]["namespace"] for each in bindings] == ["blockhouse-system"] * 2
    whole = objects()["ClusterRole", "blockhouse-operator"]["rules"]
    assert [each["rules"] for each in roles] == [whole, whole]
    election = next(each for each in found if each["metadata"]["name"] == "blockhouse-operator-election")
    assert election["metadata"]["namespace"] == "blockhouse-system"


def test_one_namespace_and_several_cannot_be_given_together() -> None:
    both = ("--set", "watchNamespace=data", "--set", "watchNamespaces={orders}")
    done = helm("template", "blockhouse", str(CHART), "--kube-version", KUBERNETES, *both)

    assert done.returncode != 0
    assert "give one of them" in done.stderr


def test_no_right_is_granted_by_a_wildcard_and_secrets_are_never_listed() -> None:
    for (kind, _), document in objects().items():
        for rule in document.get("rules", ()) if kind.endswith("Role") else ():
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "secrets" in rule["resources"]:
                assert not {"list", "watch", "delete"} & set(rule["verbs"])


def test_the_operators_options_exist() -> None:
    (container,) = objects(*VARIANTS["one-namespace"])["Deployment", "blockhouse-operator"]["spec"]["template"]["spec"][
        "containers"
    ]
    names = container["args"][:2]
    help_text = CliRunner().invoke(build_app(names), [*names, "--help"], env={"COLUMNS": "250", "TERM": "dumb"}).output

    for argument in container["args"][2:]:
        assert argument.split("=")[0] in help_text
