"""Pages: links that lead somewhere, and the form of the changelog."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from posixpath import normpath

from scripts.habits.faults import Fault, Tree

CHANGELOG = "CHANGELOG.md"
COMPONENTS = (
    "Upgrading",
    "Data path",
    "Message formats",
    "Producer",
    "Schema changes",
    "ClickHouse",
    "Operator",
    "Verifier and audit",
    "Kafka fleet",
    "Commands",
    "Development",
)
"""Sections of a release: upgrade notes first, then a component each."""

_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)


def links(tree: Tree) -> Iterator[Fault]:
    """Links within the repository whose file or heading does not exist."""
    known = set(tree.paths)
    folders = {str(parent) for path in tree.paths for parent in PurePosixPath(path).parents}
    for path in tree.paths:
        if not path.endswith(".md"):
            continue
        text = _without_code(tree.text(path))
        for match in _LINK.finditer(text):
            target, _, anchor = match[1].partition("#")
            if ":" in target:
                continue
            line = text.count("\n", 0, match.start()) + 1
            file = normpath(str(PurePosixPath(path).parent / target)) if target else path
            if file not in known and file not in folders:
                yield Fault(path, line, "link", f"{match[1]}: there is no {file}")
            elif anchor and file.endswith(".md") and anchor not in anchors(tree.text(file)):
                yield Fault(path, line, "link", f"{match[1]}: {file} has no heading of that name")


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    for match in _HEADING.finditer(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = sum(1 for known in found if known == anchor or re.fullmatch(re.escape(anchor) + r"-\d+", known))
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def changelog(tree: Tree) -> Iterator[Fault]:
    """Releases with sections for components, which hold sentences in a list."""
    section = ""
    for number, line in enumerate(_joined(tree.text(CHANGELOG)), 1):
        if line.startswith("## ") and not re.fullmatch(r"## \[[^\]]+\](?: - \d{4}-\d\d-\d\d)?", line):
            yield Fault(CHANGELOG, number, "changelog", "a release is `## [VERSION] - YYYY-MM-DD` or `## [Unreleased]`")
        elif line.startswith("### "):
            section = line.removeprefix("### ")
            if section not in COMPONENTS:
                yield Fault(CHANGELOG, number, "changelog", f"section {section!r} is none of {', '.join(COMPONENTS)}")
        elif line.startswith("- "):
            if not section:
                yield Fault(CHANGELOG, number, "changelog", "the entry stands in no component's section")
            if not line.rstrip().endswith((".", ".)")):
                yield Fault(CHANGELOG, number, "changelog", "an entry is a sentence that ends with a full stop")


def _joined(text: str) -> Iterator[str]:
    """The lines, an entry of several lines as the first of them; the others are empty."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.startswith("- "):
            rest = at + 1
            while rest < len(lines) and lines[rest].startswith("  "):
                rest += 1
            yield " ".join([line, *(part.strip() for part in lines[at + 1 : rest])])
        else:
            yield "" if line.startswith("  ") else line


def _without_code(text: str) -> str:
    """The page with code blanked out, fenced and inline, so that lines keep their numbers."""
    blank = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    return _INLINE.sub(lambda match: "\n" * match[0].count("\n"), blank)
