"""A kind of type is added in one place: every match on kinds then shows that it lacks an answer.

No chain of `isinstance` on the composed kinds stands in for a match: it would take a new kind for its last branch.

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
LEAVES = {kind.__name__ for kind in types.Leaf.__args__}
COMPOSED = (KINDS - LEAVES) | {"Leaf", "Plain", "Type", "Bare"}

OPEN = {
    # function: why its match may have a default
    "aggregator/blockhouse_aggregator/wire/loose.py::_convert": "pairs of a wire kind and a type; most have no meaning",
}

NARROWED = {
    # function: why it may ask for a composed kind without an answer for each
    "core/blockhouse/schema/types.py::plain": "its return type refuses another wrapper",
    "core/blockhouse/schema/parse.py::_composed": "what ClickHouse allows within each; all else is refused",
    "core/blockhouse/schema/document.py::_leaves": "the page's table has a line for each leaf only",
    "aggregator/blockhouse_aggregator/wire/fields.py::_nested_groups": "a flattened Nested is declared as arrays",
    "aggregator/blockhouse_aggregator/wire/native.py::_data": "chunks of another kind are joined: never wrong",
    "aggregator/blockhouse_aggregator/wire/native.py::_constant": "refuses all other kinds",
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
    changed, bare = re.subn(r"^Bare = (.*)$", r"Bare = \1 | NovelList", changed, count=1, flags=re.M)
    assert (leaf, bare) == (1, 1), "types.py no longer has one line each for Leaf and Bare"
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


def _questions(text: str) -> Iterator[str]:
    """Functions that ask by `isinstance` for a composed kind. An assertion may: it takes no kind for another."""
    tree = ast.parse(text)
    # A name of the module's own for some kinds is as good as the kinds.
    own = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _mentions(node.value, COMPOSED)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        asserted = {id(n) for each in ast.walk(function) if isinstance(each, ast.Assert) for n in ast.walk(each)}
        for node in ast.walk(function):
            match node:
                case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]) if id(node) not in asserted:
                    if _mentions(kinds, COMPOSED | own):
                        yield function.name


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


def test_no_isinstance_stands_in_for_a_match_on_composed_kinds() -> None:
    asked = {
        f"{path.relative_to(ROOT)}::{name}"
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path == TYPES or "schema.types import" in path.read_text()
        for name in _questions(path.read_text())
    }
    assert asked - set(NARROWED) == set(), (
        "a match with `assert_never`, or a question of schema/kinds.py, asks all kinds"
    )
    assert set(NARROWED) <= asked, "the list names functions that no longer ask"


def test_a_chain_on_kinds_is_seen_however_it_names_them() -> None:
    text = """
SOME = Array | Map
def direct(kind): return 1 if isinstance(kind, Array) else 0
def within(kind): return [isinstance(each, (Text, Nullable)) for each in kind]
def by_name(kind): return isinstance(kind, SOME)
def a_leaf(kind): return isinstance(kind, Integer)
def asserted(kind): assert isinstance(kind, Leaf)
"""
    assert list(_questions(text)) == ["direct", "within", "by_name"]
