"""The shape of Python files: length, totality of matches, who writes an object's attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from scripts.habits.faults import PRODUCT, Fault, Reasons, Tree

FILE_LINES, PRODUCT_FILE_LINES, FUNCTION_LINES = 300, 400, 40
ROOMS_WITHOUT_FOREIGN_WRITES = ("aggregator/blockhouse_aggregator/runtime/",)
_OPEN = "# open:"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def lengths(tree: Tree, reasons: Reasons) -> Iterator[Fault]:
    """Files over 300 lines and functions over 40 without a reason, product files over 400, and reasons without use."""
    long_files, long_functions = set[str](), set[str]()
    for path, text in tree.python():
        lines = text.count("\n")
        if lines > FILE_LINES:
            long_files.add(path)
            if path not in reasons.get("file", {}):
                yield Fault(path, 1, "file", f"{lines} lines, {FILE_LINES} without a reason in reasons.toml: split it")
            elif lines > PRODUCT_FILE_LINES and path.startswith(PRODUCT):
                yield Fault(path, 1, "file", f"{lines} lines, {PRODUCT_FILE_LINES} at most in the product: split it")
        for name, function in functions(parsed(text)):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > FUNCTION_LINES:
                key = f"{path}::{name}"
                long_functions.add(key)
                if key not in reasons.get("function", {}):
                    text_ = f"{name} has {length} lines, {FUNCTION_LINES} without a reason in reasons.toml: split it"
                    yield Fault(path, function.lineno, "function", text_)
    for rule, used in (("file", long_files), ("function", long_functions)):
        for name in sorted(reasons.get(rule, {}).keys() - used):
            yield Fault("scripts/habits/reasons.toml", 1, rule, f"{name} needs no reason any more: remove the line")


def closed_matches(tree: Tree) -> Iterator[Fault]:
    """`case _` in the product that neither states why it is open nor ends in `assert_never`."""
    for path, text in tree.python(*PRODUCT, "e2e/"):
        lines = text.splitlines()
        for node in statements(parsed(text)) if "case _" in text else ():
            if isinstance(node, ast.Match):
                for case in node.cases:
                    line = case.pattern.lineno
                    if _is_default(case.pattern) and not _never(case.body) and _OPEN not in lines[line - 1]:
                        yield Fault(
                            path,
                            line,
                            "default",
                            "`case _` takes what is added later: list the cases and end in assert_never, "
                            f"or write `{_OPEN} why` behind it",
                        )


def foreign_writes(tree: Tree) -> Iterator[Fault]:
    """Attributes assigned from outside their class, where objects may only call each other's methods."""
    for path, text in tree.python(*ROOMS_WITHOUT_FOREIGN_WRITES):
        for node in statements(parsed(text)):
            for target in _targets(node):
                if isinstance(target, ast.Attribute) and not _own(target.value):
                    written = ast.unparse(target)
                    yield Fault(path, target.lineno, "write", f"{written} belongs to another object: call its method")


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Every function with its name within the module: `Class.method`, `function.inner`."""

    def within(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in _inside(node):
            if isinstance(child, Function):
                yield f"{prefix}{child.name}", child
            named = isinstance(child, Function | ast.ClassDef)
            yield from within(child, f"{prefix}{child.name}." if named else prefix)  # type: ignore[attr-defined]

    yield from within(tree, "")


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement below `node`; expressions, which are most of a tree, are not visited."""
    for child in _inside(node):
        if isinstance(child, ast.stmt):
            yield child
        yield from statements(child)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        children = getattr(node, field, ())
        yield from children if isinstance(children, list) else ()


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _is_default(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None


def _never(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "assert_never"
        for statement in body
        for node in ast.walk(statement)
    )


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            for target in targets:
                yield from target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            yield target
        case _:
            return


def _own(owner: ast.expr) -> bool:
    return isinstance(owner, ast.Name) and owner.id in ("self", "cls")
