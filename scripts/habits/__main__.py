"""`scripts/check-habits`: every rule on the whole tree, in a few seconds."""

from __future__ import annotations

import argparse
import gc
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from scripts.habits import commits, docstrings, documents, shapes, words
from scripts.habits.faults import Fault, Reasons, Tree

_SHOWN = 40
_EPILOG = """examples:
  scripts/check-habits                                what make lint runs
  scripts/check-habits --all docs/                    every fault in files below docs/
  scripts/check-habits --message .git/COMMIT_EDITMSG  what the commit-msg hook runs
exit code: 0 nothing found, 1 faults, 2 wrong arguments"""


def faults(tree: Tree, reasons: Reasons) -> Iterator[Fault]:
    """What the rules find."""
    yield from words.check(tree, words.WordList.read())
    yield from shapes.lengths(tree, reasons)
    yield from shapes.closed_matches(tree)
    yield from shapes.foreign_writes(tree)
    yield from docstrings.check(tree)
    yield from documents.links(tree)
    yield from documents.changelog(tree)
    yield from commits.check(tree.root)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/check-habits", description="Count what CONTRIBUTING.md asks for.", epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("paths", nargs="*", help="show only faults of files whose path begins with one of these")
    parser.add_argument("--all", action="store_true", help=f"show every fault, not only the first {_SHOWN}")
    parser.add_argument("--message", metavar="FILE", type=Path, help="check a commit message and nothing else")
    options = parser.parse_args(arguments)
    if options.message:
        return _show([f"commit message: {fault}" for fault in commits.message(options.message.read_text())])
    gc.disable()  # all syntax trees are kept, so that collections find nothing and cost half of the time
    reasons: Reasons = tomllib.loads(Path(__file__).with_name("reasons.toml").read_text())
    found = sorted(faults(Tree.tracked(), reasons))
    if options.paths:
        found = [fault for fault in found if fault.path.startswith(tuple(options.paths))]
    print(f"habits: {len(found)} faults")
    return _show([str(fault) for fault in found], None if options.all else _SHOWN)


def _show(lines: list[str], most: int | None = None) -> int:
    for line in lines[:most]:
        print(line, file=sys.stderr)
    if most is not None and len(lines) > most:
        print(f"... and {len(lines) - most} more: scripts/check-habits --all", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
