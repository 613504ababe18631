"""The chart's values: each is described and checked. What helm makes of them is tested where helm is (`make e2e`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from tests.unit.operator.resources import ROOT

CHART = ROOT / "charts" / "blockhouse"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
PAGE = (ROOT / "docs" / "operator.md").read_text()


def undeclared(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Values that the schema does not know. An object without properties takes anything."""
    for key, value in values.items():
        properties = schema.get("properties")
        if properties is None:
            continue
        if key not in properties:
            yield f"{path}{key}"
        elif isinstance(value, dict):
            yield from undeclared(value, properties[key], f"{path}{key}.")


def refused(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Values of another type than the schema has, what it does not know in a list's items, and what these lack."""
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
    known = schema.get("type", "")
    if isinstance(known, str) and known in kinds and not isinstance(value, kinds[known]):
        yield f"{path} is no {known}"
    elif isinstance(value, dict):
        yield from (f"{path} lacks {name}" for name in schema.get("required", ()) if name not in value)
        for key, inner in value.items():
            properties = schema.get("properties", {key: {}})
            yield from refused(inner, properties[key], key) if key in properties else (f"{path} has {key}",)
    elif isinstance(value, list):
        for item in value:
            yield from refused(item, schema.get("items", {}), path)


def test_every_value_is_checked_by_the_schema() -> None:
    assert list(undeclared(VALUES, SCHEMA)) == []


def test_the_example_sets_values_that_exist_as_the_schema_has_them() -> None:
    values = yaml.safe_load((ROOT / "examples" / "chart" / "values.yaml").read_text())

    assert list(undeclared(values, SCHEMA)) == []
    assert list(refused(values, SCHEMA)) == []
    assert list(refused({"watchNamespaces": "orders"}, SCHEMA)) == ["watchNamespaces is no array"]


def test_every_checked_value_has_a_default() -> None:
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)


def test_every_value_is_described() -> None:
    assert [key for key in VALUES if f"`{key}" not in PAGE] == []


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "pyproject.toml").read_text()

    assert f'\nversion = "{chart["appVersion"]}"\n' in project


def test_the_operator_is_not_one_of_its_own_children() -> None:
    """Children are found by these labels: a chart that set them would have its Deployment taken for a pipeline's."""
    assert "ingest.blockhouse.dev/" not in (CHART / "templates" / "deployment.yaml").read_text()
    assert "app.kubernetes.io/part-of" not in (CHART / "templates" / "_helpers.tpl").read_text()


def test_gitops_examples_name_the_chart_and_values_that_exist() -> None:
    for path in sorted((ROOT / "examples" / "gitops").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            spec = document.get("spec", {})
            values = spec.get("values") or spec.get("source", {}).get("helm", {}).get("valuesObject")
            if values:
                assert list(undeclared(values, SCHEMA)) == [], path.name
                chart = spec.get("chart", {}).get("spec", {}).get("chart") or spec["source"]["path"]
                assert (ROOT / chart / "Chart.yaml").exists()
