"""A later version of the operator and of the definitions, for tests of upgrades."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from e2e.cluster import Access
from e2e.scenarios.operator import OperatorProcess

SOURCE = Path(__file__).parents[2] / "operator" / "blockhouse_operator"
LATER = {"SPARK_LOCAL_DIRS": "SPARK_LOCAL_DIRECTORIES"}
"""What the newer operator calls differently in every pod."""
FIELD = "later"
"""A field of a spec that only the newer definitions have."""
DEFINITIONS = ("blockaggregators", "clickhouseshardingests")


def newer_operator(folder: Path) -> type[OperatorProcess]:
    """A copy of ours in `folder`, with another pod template."""
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


@contextmanager
def newer_definitions(cluster: Access) -> Iterator[None]:
    """The definitions with the new field, as an upgrade applies them while older operators run."""
    _patch(cluster, {"op": "add", "value": {"type": "string"}})
    try:
        yield
    finally:
        _patch(cluster, {"op": "remove"})


def _patch(cluster: Access, change: dict[str, object]) -> None:
    path = f"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{FIELD}"
    for plural in DEFINITIONS:
        name = f"{plural}.ingest.blockhouse.dev"
        cluster.kubectl("patch", "crd", name, "--type=json", "-p", json.dumps([{**change, "path": path}]))
