"""ARCHITECTURE.md and the tree are the same: every folder it names exists, every package there is has its line."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
NAMED = set(re.findall(r"`([\w./-]+/)`", PAGE))
SOURCE_ROOTS = ("core", "aggregator", "mirror", "operator", "e2e")


def packages() -> set[str]:
    found = (init.parent.relative_to(ROOT) for root in SOURCE_ROOTS for init in (ROOT / root).rglob("__init__.py"))
    return {f"{package}/" for package in found}


def test_every_folder_that_is_named_exists() -> None:
    assert len(NAMED) > 20, "the names are no longer found"
    assert {name for name in NAMED if not (ROOT / name).is_dir()} == set()


def test_every_package_is_named() -> None:
    assert packages() - NAMED == set()


def imports(path: Path) -> set[str]:
    """Modules that a file imports, from `x` or by name."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return named | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def test_nothing_but_the_demonstration_imports_the_demonstration() -> None:
    """What others share with it is in e2e/kit, which imports none of them."""
    users = (path for folder in ("e2e", "bench", "tests") for path in (ROOT / folder).rglob("*.py"))
    others = [path for path in users if "demo" not in path.relative_to(ROOT).parts]
    assert len(others) > 300, "the files are no longer found"
    assert [str(path) for path in others if any(name.startswith("e2e.demo") for name in imports(path))] == []


def test_the_kit_imports_none_of_its_users() -> None:
    users = tuple(f"e2e.{name}" for name in ("demo", "chaos", "rollouts", "scenarios", "simulator"))
    found = {str(path): imports(path) for path in (ROOT / "e2e" / "kit").glob("*.py")}
    assert {path: n for path, names in found.items() if (n := {m for m in names if m.startswith(users)})} == {}


def test_the_source_roots_are_no_packages() -> None:
    for root in ("core", "aggregator", "mirror", "operator"):
        assert not (ROOT / root / "__init__.py").exists(), "`operator` would hide the standard library's module"


def test_images_are_built_from_every_package_of_the_wheel() -> None:
    """What `.dockerignore` keeps out is missing in the wheel of the images, without a word of the build."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    roots = {package.split("/")[0] for package in wheel["packages"]}
    let_in = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    decides = (ROOT / "scripts" / "images").read_text()
    assert roots - let_in == set()
    assert [root for root in roots if not re.search(rf"paths\+=\([^)]*\b{root}\b", decides)] == []


def test_everything_that_is_named_for_a_change_exists() -> None:
    table = PAGE.split("## To change something")[1]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| to |")]
    named = {
        (row.split(" | ")[0], path) for row in rows for path in re.findall(r"`([\w.-]+/[\w./-]+|[\w-]+\.\w+)`", row)
    }

    assert len(rows) >= 10, "the table is no longer found"
    assert {row.split(" | ")[0] for row in rows} == {row for row, _ in named}, "a change without a path"
    assert {(row, path) for row, path in named if not (ROOT / path).exists()} == set()


LIBRARIES = {
    "clickhouse-driver": {"clickhouse_driver"},
    "PySpark": {"pyspark"},
    "kazoo": {"kazoo"},
    "confluent-kafka": {"confluent_kafka"},
    "kafka-python": {"kafka"},
    "kubernetes, kopf": {"kubernetes", "kopf"},
}
"""Rows of the table of client libraries, and what they are called in an import."""


def dotted(path: str) -> str:
    return path.partition("/")[2].removesuffix(".py").strip("/").replace("/", ".")


def test_the_modules_named_for_a_client_library_are_those_of_import_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    pairs = [entry.split(" -> ") for contract in contracts for entry in contract.get("ignore_imports", [])]
    rows = dict(re.findall(r"^  \| ([\w-]+(?:, [\w-]+)*) \| (.*/.*) \|$", PAGE, re.M))

    assert rows.keys() == LIBRARIES.keys()
    for row, libraries in LIBRARIES.items():
        named = {dotted(path) for path in re.findall(r"`([\w.-]+/[\w./-]+)`", rows[row])}
        assert named == {module.rstrip(".*") for module, library in pairs if library in libraries}, row


def test_no_program_imports_a_client_library_outside_of_its_rule() -> None:
    """A rule that names some of the packages does not see the others."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    ruled = {
        library: contract["source_modules"]
        for contract in contracts["contracts"]
        for library in contract.get("forbidden_modules", ())
        if contract.get("ignore_imports")
    }
    assert ruled == dict.fromkeys(set().union(*LIBRARIES.values()), contracts["root_packages"])


def test_headers_of_messages_are_read_in_one_place() -> None:
    """Asked twice for a name that is not UTF-8, the client crashes the process (`kafka/headers.py`)."""
    package = ROOT / "aggregator" / "blockhouse_aggregator"
    readers = [
        path.name for path in package.rglob("*.py") if re.search(r"\.headers\(\)|[\"']headers[\"']\)", path.read_text())
    ]
    assert readers == ["headers.py"]
