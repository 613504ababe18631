"""Each command's extra brings whatever the command imports, and the packages that a producer needs bring no Spark."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, packages_distributions
from pathlib import Path

import pytest

from blockhouse import cli

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
GROUPS = (cli.GROUP, "blockhouse.status_sources", "blockhouse.schema_sources")
COMMANDS = [
    EntryPoint(name, value, group) for group in GROUPS for name, value in PROJECT["entry-points"][group].items()
]
SOURCES = {
    "blockhouse": ROOT / "core",
    "blockhouse_aggregator": ROOT / "aggregator",
    "blockhouse_mirror": ROOT / "mirror",
    "blockhouse_operator": ROOT / "operator",
}
WITH = {"pydantic-core": "pydantic"}
"""Distributions that another one always brings, in its own version."""


def brought_by(*extras: str) -> set[str]:
    """Normalised names of distributions."""
    found: set[str] = set()
    waiting = [*PROJECT["dependencies"], *(entry for extra in extras for entry in EXTRAS[extra])]
    while waiting:
        name, _, inner = re.match(r"([\w.-]+)(\[(.*?)\])?", waiting.pop()).groups()  # type: ignore[union-attr]
        if name == "blockhouse":
            waiting += [entry for extra in inner.split(",") for entry in EXTRAS[extra]]
        found.add(normal(name))
    return found


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution.lower())


def imported(module: str) -> set[str]:
    """Top-level names of other people's packages that a module of ours imports, itself or through others of ours."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        top = name.split(".")[0]
        if top not in SOURCES:
            found |= {top} - sys.stdlib_module_names
            continue
        source = file_of(name)
        if source is None:  # a name inside a module
            continue
        waiting += [name.rsplit(".", 1)[0]] if "." in name else []
        waiting += imports(source)
    return found


def file_of(module: str) -> Path | None:
    path = SOURCES[module.split(".")[0]].joinpath(*module.split("."))
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


@cache
def imports(source: Path) -> Sequence[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    return found


def missing(module: str, *extras: str) -> set[str]:
    """What a module imports and its extras do not bring."""
    brought = brought_by(*extras)
    needed = {name: {normal(owner) for owner in owners().get(name, [name])} for name in imported(module)}
    return {name for name, by in needed.items() if not brought & {WITH.get(owner, owner) for owner in by}}


@cache
def owners() -> Mapping[str, Sequence[str]]:
    """By top-level name, the distributions that have it."""
    return packages_distributions()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_extra_of_a_command_brings_what_it_imports(command: EntryPoint) -> None:
    assert missing(command.module, *command.extras) == set()


def test_a_producer_needs_neither_spark_nor_pandas() -> None:
    assert missing("blockhouse.producer", "producer") == set()
    assert missing("blockhouse_aggregator.coordination.schema_store", "producer") == set()
    assert not brought_by("producer") & {"pyspark", "pandas", "pyarrow", "numpy", "clickhouse-driver"}


def test_what_is_missing_is_found() -> None:
    assert "pyspark" in missing("blockhouse_aggregator.commands.aggregator", "fleet")
    assert "kopf" in missing("blockhouse_operator.cli", "aggregator")
