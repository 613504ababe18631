"""`scripts/check-habits`: every rule on the whole tree, in a few seconds."""

from __future__ import annotations

import argparse
import gc
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.habits import baseline, commits, docstrings, documents, shapes, words
from scripts.habits.faults import ROOT, Fault, Reasons, Tree

_SHOWN = 40
_EPILOG = """examples:
  scripts/check-habits                                what make lint runs
  scripts/check-habits --all docs/                    also what the baseline excuses, in files below docs/
  scripts/check-habits --update                       after words or files were corrected: shrink the baseline
  scripts/check-habits --message .git/COMMIT_EDITMSG  what the commit-msg hook runs
exit code: 0 nothing found, 1 faults, 2 wrong arguments"""


def faults(tree: Tree, reasons: Reasons) -> Iterator[Fault]:
    """What the rules find, whether the baseline excuses it or not."""
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
    parser.add_argument("--all", action="store_true", help="also show what the baseline excuses")
    parser.add_argument("--update", action="store_true", help="write smaller counts to the baseline")
    parser.add_argument(
        "--freeze", metavar="WHY", help="write the counts of now, also where they grow, for this reason"
    )
    parser.add_argument("--message", metavar="FILE", type=Path, help="check a commit message and nothing else")
    options = parser.parse_args(arguments)
    if options.message:
        return _show([f"commit message: {fault}" for fault in commits.message(options.message.read_text())])
    gc.disable()  # all syntax trees are kept, so that collections find nothing and cost half of the time
    reasons: Reasons = tomllib.loads(Path(__file__).with_name("reasons.toml").read_text())
    found = list(faults(Tree.tracked(), reasons))
    written = (ROOT / baseline.PATH).read_text()
    if options.freeze:
        return _write(found, baseline.counted(found), (*baseline.freezes(written), options.freeze))
    allowed = baseline.read(written)
    if options.update:
        counts = baseline.shrunk(allowed, baseline.counted(found))
        return _write(found, counts, baseline.freezes(written))
    shown = sorted(found) if options.all else baseline.beyond(found, allowed)
    if options.paths:
        shown = [fault for fault in shown if fault.path.startswith(tuple(options.paths))]
    lines = [str(fault) for fault in shown]
    if not options.all:
        lines += [
            f"{baseline.PATH}: grew since {commit}: {text}"
            for commit, before in baseline.committed(ROOT, baseline.freezes(written))
            for text in baseline.growth(before, allowed)
        ]
    excused = sum(allowed.values())
    print(f"habits: {len(found)} faults, of which the baseline excuses {excused}; {len(lines)} to be corrected")
    return _show(lines, _SHOWN if not options.all else None)


def _write(found: list[Fault], counts: baseline.Counts, reasons: Sequence[str]) -> int:
    (ROOT / baseline.PATH).write_text(baseline.written(counts, reasons))
    print(f"habits: {baseline.PATH} excuses {sum(counts.values())} faults")
    return _show([str(fault) for fault in baseline.beyond(found, counts)], _SHOWN)


def _show(lines: list[str], most: int | None = None) -> int:
    for line in lines[:most]:
        print(line, file=sys.stderr)
    if most is not None and len(lines) > most:
        print(f"... and {len(lines) - most} more: scripts/check-habits --all", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
