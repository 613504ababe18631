"""Faults that are older than their rule: how many of them each file may still have.

The counts only shrink, until they are frozen again for a reason that stands in the file: `# freeze 2: why`. That is
for work that began before a rule and is merged after it; a reader of the change sees the new line.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from scripts.habits.faults import Fault

PATH = "scripts/habits/baseline.tsv"
_HEAD = "# rule, file, faults it may still have. Written by `scripts/check-habits --update`; counts only shrink.\n"
_FREEZE = re.compile(r"^# freeze \d+: (.+)$", re.MULTILINE)

Counts = Mapping[tuple[str, str], int]
"""(rule, file) -> faults."""


def counted(faults: Iterable[Fault]) -> Counts:
    return Counter((fault.rule, fault.path) for fault in faults)


def read(text: str) -> Counts:
    """Raises ValueError for a line that is not `rule, file, count`."""
    lines = (line.split("\t") for line in text.splitlines() if line and not line.startswith("#"))
    return {(rule, path): int(count) for rule, path, count in lines}


def freezes(text: str) -> tuple[str, ...]:
    """The reasons for which the counts were frozen, the latest last."""
    return tuple(_FREEZE.findall(text))


def written(counts: Counts, reasons: Sequence[str] = ("before the rules",)) -> str:
    """The file's text; `reasons` as `freezes` reads them."""
    frozen = "".join(f"# freeze {number}: {reason}\n" for number, reason in enumerate(reasons, 1))
    return _HEAD + frozen + "".join(f"{rule}\t{path}\t{n}\n" for (rule, path), n in sorted(counts.items()) if n)


def beyond(faults: Iterable[Fault], allowed: Counts) -> list[Fault]:
    """The faults of each rule and file that has more than it may; all of them, since none is the new one."""
    listed = sorted(faults)
    found = counted(listed)
    return [fault for fault in listed if found[fault.rule, fault.path] > allowed.get((fault.rule, fault.path), 0)]


def shrunk(before: Counts, now: Counts) -> Counts:
    """`before` without what was corrected; what a renamed file had goes with it as far as the total allows."""
    kept = {key: min(n, now[key]) for key, n in before.items() if now.get(key)}
    for (rule, path), n in sorted(now.items()):
        if (rule, path) not in before:
            room = sum(m for (of, _), m in before.items() if of == rule)
            room -= sum(m for (of, _), m in kept.items() if of == rule)
            kept[rule, path] = min(n, room)
    return {key: n for key, n in kept.items() if n}


def growth(before: Counts, now: Counts) -> Iterator[str]:
    """In what `now` allows more than `before`. A renamed file may keep its count, for the total is the same."""
    for rule in sorted({rule for rule, _ in now}):
        totals = [sum(n for (of, _), n in counts.items() if of == rule) for counts in (before, now)]
        known = any(of == rule for of, _ in before)
        if known and totals[1] > totals[0]:
            yield f"{rule}: {totals[1]} in all, {totals[0]} before"
        for (of, path), n in sorted(now.items()):
            if of == rule and n > before.get((of, path), n):
                yield f"{rule}: {path} has {n}, {before[of, path]} before"


def committed(root: Path, reasons: Sequence[str]) -> Iterator[tuple[str, Counts]]:
    """The baselines of the last commits, as far as they can be read and were frozen for the same `reasons`."""
    for commit in ("HEAD", "HEAD^"):
        command = ["git", "-C", str(root), "show", f"{commit}:{PATH}"]
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
        if shown.returncode == 0 and freezes(shown.stdout) == tuple(reasons):
            yield commit, read(shown.stdout)
