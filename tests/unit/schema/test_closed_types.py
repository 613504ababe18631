"""A kind of type is added in one place: every match on kinds then shows that it lacks an answer.

`mypy` reads the product with a `types.py` that has one kind of leaf, one composed kind and one member of each
enumeration more, and has to report an error within every match on them. A match that passes has a silent default.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import blockhouse.schema.types as types

ROOT = Path(__file__).parents[3]
TYPES = ROOT / "core/blockhouse/schema/types.py"
PRODUCT = ("core/blockhouse", "aggregator/blockhouse_aggregator", "operator/blockhouse_operator")
KINDS = {kind.__name__ for kind in types.Type.__args__}
ENUMERATIONS = {"Unit", "Layout", "Proto"}

OPEN = {
    # function: why its match may have a default
    "aggregator/blockhouse_aggregator/wire/loose.py::_convert": "pairs of a wire kind and a type; most have no meaning",
}

NOVEL_LEAF = """
@dataclass(frozen=True, slots=True)
class NovelLeaf:
    proto: Proto = Proto.BYTES
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class NovelList:
    inner: Type


"""


def _with_novelties(text: str) -> str:
    changed, leaf = re.subn(r"^Leaf = (.*)$", NOVEL_LEAF + r"Leaf = \1 | NovelLeaf", text, count=1, flags=re.M)
    changed, plain = re.subn(r"^Plain = (.*)$", r"Plain = \1 | NovelList", changed, count=1, flags=re.M)
    assert (leaf, plain) == (1, 1), "types.py no longer has one line each for Leaf and Plain"
    for name in ENUMERATIONS:
        head = rf"^class {name}\(StrEnum\):\n    \"\"\".*\"\"\"\n"
        changed, found = re.subn(head, r'\g<0>\n    NOVEL = "novel"\n', changed, flags=re.M)
        assert found == 1, f"types.py no longer has the enumeration {name}"
    return changed


def _names(pattern: ast.pattern) -> Iterator[str]:
    """Kinds and enumerations by which the pattern narrows; those of a class pattern's attributes are not among them."""
    match pattern:
        case ast.MatchClass(cls=ast.Name(id=name)):
            yield name
        case ast.MatchValue(value=ast.Attribute(value=ast.Name(id=name))):
            yield name
        case ast.MatchOr(patterns=parts) | ast.MatchSequence(patterns=parts):
            for part in parts:
                yield from _names(part)
        case ast.MatchAs(pattern=ast.pattern() as inner):
            yield from _names(inner)


def _matches(types_text: str) -> Iterator[tuple[str, str, ast.Match]]:
    """Path, function and statement of every match on kinds, with `types_text` in place of types.py."""
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = types_text if path == TYPES else path.read_text()
            if path != TYPES and "schema.types import" not in text:
                continue
            for function in ast.walk(ast.parse(text)):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    for node in ast.walk(function):
                        if isinstance(node, ast.Match) and _named(node) & (KINDS | ENUMERATIONS):
                            yield str(path.relative_to(ROOT)), function.name, node


def _named(match: ast.Match) -> set[str]:
    return {name for case in match.cases for name in _names(case.pattern)}


def test_every_match_on_kinds_refuses_a_kind_that_it_has_no_answer_for(tmp_path: Path) -> None:
    novel = tmp_path / "types.py"
    novel.write_text(_with_novelties(TYPES.read_text()))
    matches = [(path, name, node) for path, name, node in _matches(novel.read_text()) if f"{path}::{name}" not in OPEN]
    assert len(matches) >= 20, "the matches on kinds were not found"
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports=silent"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache/novel")]
    command += ["--shadow-file", str(TYPES.relative_to(ROOT)), str(novel), *sorted({path for path, _, _ in matches})]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    found = [(m[1], int(m[2])) for m in re.finditer(r"^(\S+?):(\d+): error: ", run.stdout, re.M)]
    assert found, f"mypy accepted every module: {run.stdout}{run.stderr}"
    silent = [
        f"{path}:{node.lineno} in {name}"
        for path, name, node in matches
        if not any(at == path and node.lineno <= line <= (node.end_lineno or 0) for at, line in found)
    ]
    assert not silent, f"these matches take a new kind for another one: {silent}"


def test_the_list_of_open_matches_names_only_matches_that_exist() -> None:
    assert set(OPEN) <= {f"{path}::{name}" for path, name, _ in _matches(TYPES.read_text())}
