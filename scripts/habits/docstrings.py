"""Docstrings of what is called from elsewhere: commands, and public names that another package imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from scripts.habits.faults import PRODUCT, Fault, Tree
from scripts.habits.shapes import Function, parsed, statements

RULE = "docstring"


def check(tree: Tree) -> Iterator[Fault]:
    """Public functions, classes and their methods without a docstring that a package other than their own uses."""
    used = _imported_elsewhere(tree)
    for path, text in tree.python(*PRODUCT):
        module = _module(path)
        if not ast.get_docstring(parsed(text)) and not path.endswith("__init__.py"):
            yield Fault(path, 1, RULE, "the module does not state why it exists and what it must never do")
        for node in parsed(text).body:
            if isinstance(node, Function | ast.ClassDef) and (f"{module}.{node.name}" in used or _is_command(node)):
                yield from _undocumented(path, node)


def _undocumented(path: str, node: Function | ast.ClassDef) -> Iterator[Fault]:
    if not ast.get_docstring(node) and not _has_help(node):
        yield Fault(path, node.lineno, RULE, f"{node.name} is used by other packages: state shapes, units and errors")
    for method in node.body if isinstance(node, ast.ClassDef) else []:
        plain = isinstance(method, Function) and not method.name.startswith("_") and not method.decorator_list
        if plain and isinstance(method, Function) and not ast.get_docstring(method):
            text = f"{node.name}.{method.name} is used by other packages: state shapes, units and errors"
            yield Fault(path, method.lineno, RULE, text)


def _is_command(node: Function | ast.ClassDef) -> bool:
    """Whether typer makes a command of it, whose help is its docstring."""
    return any(
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr in ("command", "callback")
        for decorator in node.decorator_list
    )


def _has_help(node: Function | ast.ClassDef) -> bool:
    """Whether the decorator has the help of a command."""
    calls = (decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call))
    return any(keyword.arg == "help" for call in calls for keyword in call.keywords)


def _imported_elsewhere(tree: Tree) -> set[str]:
    """Full names that a product, e2e or bench module of another package imports."""
    found = set[str]()
    for path, text in tree.python(*PRODUCT, "e2e/", "bench/"):
        package = _module(path).rpartition(".")[0]
        for node in statements(parsed(text)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.rpartition(".")[0] != package:
                found |= {f"{node.module}.{alias.name}" for alias in node.names if not alias.name.startswith("_")}
    return found


def _module(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    for root in ("core", "aggregator", "mirror", "operator"):
        if parts[0] == root:
            parts = parts[1:]
            break
    return ".".join(parts)
