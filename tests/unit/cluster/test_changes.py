"""Whether `make e2e` changes every field that the definition has, or states why it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.scenarios.changes import OTHERWISE, changed_paths
from e2e.scenarios.resources import example

CRD = Path(__file__).parents[3] / "crds" / "blockaggregators.ingest.blockhouse.dev.yaml"


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    if "properties" in schema:
        for name, below in schema["properties"].items():
            yield from fields(below, f"{path}.{name}" if path else name)
    elif schema.get("type") == "array" and "properties" in schema["items"]:
        yield from fields(schema["items"], f"{path}.[]")
    else:
        yield path


def below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}.")


def of_the_spec() -> list[str]:
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    return list(fields(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))


def test_every_field_is_changed_or_it_is_stated_why_not() -> None:
    changed = changed_paths(example())
    left = [
        path
        for path in of_the_spec()
        if not any(below(one, path) for one in changed) and not any(below(path, parent) for parent in OTHERWISE)
    ]
    assert left == []


def test_no_excuse_is_out_of_date() -> None:
    known, changed = of_the_spec(), changed_paths(example())
    assert [parent for parent in OTHERWISE if not any(below(path, parent) for path in known)] == []
    assert [parent for parent in OTHERWISE if any(below(path, parent) for path in changed)] == []
