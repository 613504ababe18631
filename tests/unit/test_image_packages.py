"""Each image has the packages that our code imports in it: one that is loaded late is missed only in production."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        importlib.import_module(module.name)
ours = [module for name, module in sys.modules.items() if name.partition(".")[0].startswith("blockhouse")]
print(*(module.__file__ for module in ours if module.__file__), sep="\\n")
"""


@pytest.mark.parametrize(
    ("image", "packages"),
    [("operator", ["blockhouse_operator"]), ("aggregator", ["blockhouse_aggregator", "blockhouse_mirror"])],
)
def test_an_image_has_what_our_code_imports_in_it(image: str, packages: list[str]) -> None:
    locked = (ROOT / "images" / image / "requirements.lock").read_text()
    there = {_normal(name) for name in re.findall(r"^([A-Za-z0-9_.-]+)==", locked, re.MULTILINE)} | {"blockhouse"}
    done = subprocess.run([sys.executable, "-c", FILES, *packages], capture_output=True, text=True, check=True)
    by_module, missing = packages_distributions(), {}
    for file in map(Path, done.stdout.split()):
        for module in _imported(ast.parse(file.read_text())):
            if not any(_normal(name) in there for name in by_module.get(module, ["blockhouse"])):
                missing[module] = str(file)
    assert missing == {}


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
